import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { availableParallelism, loadavg } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { machine, table, write } from './report.mjs'

const BENCH = fileURLToPath(new URL('.', import.meta.url))
const ROOT = join(BENCH, '..')
/** Each workload module with the numbers of the goals that it measures. */
const WORKLOADS = {
  append: ['W1', 'W2', 'W3', 'W4'],
  read: ['W5'],
  put: ['W6'],
  get: ['W6'],
  list: ['W6'],
  commit: ['W6'],
  cas: ['W7'],
  open: ['W8'],
  growth: ['W9'],
  level: ['W10'],
  langgraph: ['W10'],
  openworkflow: ['W10'],
  bytes: ['W10'],
  postgres: ['W11'],
  checkpoint: [],
  server: ['W12'],
  projector: ['W13'],
  blocks: ['W15'],
}
const NAMES = [...Object.keys(WORKLOADS), ...new Set(Object.values(WORKLOADS).flat())]

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '1' },
    write: { type: 'boolean', default: false },
    sizes: { type: 'string' },
    only: { type: 'string' },
  },
})
const unknown = positionals.filter(name => !NAMES.includes(name))
if (unknown.length > 0) {
  console.error(`unknown workload: ${unknown.join(', ')}. Choose from: ${NAMES.join(', ')}`)
  process.exit(2)
}
const chosen = Object.entries(WORKLOADS).flatMap(([name, numbers]) => {
  if (positionals.length === 0 || positionals.includes(name)) return [{ name, numbers }]
  const some = numbers.filter(number => positionals.includes(number))
  return some.length > 0 ? [{ name, numbers: some }] : []
})

installPeers()
buildAnnals()

// Imported only now, because the peers may have just been installed.
const { runWorkload } = await import('./workload.mjs')
if (loadavg()[0] > availableParallelism() / 2) {
  console.error(`the machine is busy (load ${loadavg()[0].toFixed(1)}), so expect noise`)
}
const settings = {
  rounds: Number(options.rounds),
  seconds: Number(options.seconds),
  sizes: options.sizes?.split(',').map(Number),
  only: options.only,
}
const rows = []
for (const { name, numbers } of chosen) {
  const since = performance.now()
  rows.push(...(await runWorkload(name, numbers, settings)))
  console.error(`${name}: ${Math.round((performance.now() - since) / 1000)} s`)
}
const result = { machine: machine(), settings, rows }
console.log(table(result))
// A partial run writes nothing, because it would leave old and new figures on one page.
if (positionals.length === 0 || options.write) write(result, join(ROOT, 'docs', 'benchmarks'))

function installPeers() {
  if (existsSync(join(BENCH, 'node_modules'))) return
  console.error('installing the peers into bench/node_modules (better-sqlite3 compiles for a minute or two)')
  npm('ci', '--prefix', BENCH, '--no-audit', '--no-fund')
}

function buildAnnals() {
  const built = join(ROOT, 'dist', 'index.js')
  if (existsSync(built) && statSync(built).mtimeMs >= newest(join(ROOT, 'src'))) return
  console.error('building Annals, because dist/ is missing or older than src/')
  npm('run', 'build')
}

function newest(folder) {
  const times = readdirSync(folder, { recursive: true }).map(name => statSync(join(folder, name)).mtimeMs)
  return Math.max(...times)
}

function npm(...args) {
  execFileSync('npm', args, { cwd: ROOT, stdio: ['ignore', 2, 2] })
}
