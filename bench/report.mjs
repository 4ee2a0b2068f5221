import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { arch, cpus, platform, release, totalmem } from 'node:os'
import { join } from 'node:path'
import { plot } from './plot.mjs'

export function machine() {
  return {
    date: new Date().toISOString().slice(0, 10),
    cpu: cpuModel(),
    cores: cpus().length,
    memory: `${Math.round(totalmem() / 2 ** 30)} GB`,
    system: `${platform()} ${release()} ${arch()}`,
    node: process.version,
  }
}

/** The model of the processor. Node reports "unknown" on some virtual machines where `lscpu` knows it. */
function cpuModel() {
  const model = cpus()[0]?.model.trim()
  if (model && model !== 'unknown') return model
  try {
    return /^Model name:\s*(.+)$/m.exec(execFileSync('lscpu', { encoding: 'utf8' }))?.[1] ?? 'unknown'
  } catch {
    return 'unknown'
  }
}

/** A row is noisy if its fastest round is more than half faster than its slowest: something else used the machine. */
function noisy({ ours, theirs }) {
  return [ours, theirs].some(
    side => side?.rounds && Math.max(...side.rounds) > 1.5 * Math.min(...side.rounds),
  )
}

function verdict({ ratio, ours, must, aim }) {
  if (must === undefined) return ''
  if (!reaches(must, must.atLeast ?? must.atMost ?? must.floor, ratio, ours)) return '**missed**'
  if (aim === undefined) return 'met'
  return reaches(must, aim, ratio, ours) ? 'met, aim too' : 'met'
}

/** A goal is a minimum ratio (`atLeast`), or a maximum (`atMost`) or minimum (`floor`) of our own figure. */
function reaches(must, goal, ratio, { value }) {
  if (must.atLeast !== undefined) return ratio >= goal
  return must.floor === undefined ? value <= goal : value >= goal
}

export function table({ machine, settings, rows }) {
  const { date, cpu, cores, memory, system, node } = machine
  const judged = rows.filter(row => row.must !== undefined)
  const missed = judged.filter(row => verdict(row).includes('missed'))
  return [
    '# Benchmarks',
    '',
    `Measured on ${date} with ${cpu}, ${cores} cores, ${memory}, ${system}, Node ${node}.`,
    '',
    `Each figure is the median of ${settings.rounds} rounds of ${settings.seconds} s. Annals and the peers take turns. \`bench/README.md\` describes the`,
    'workloads and the settings of the peers. Compare the ratios: the absolute figures depend on the machine.',
    '',
    `Annals meets ${judged.length - missed.length} of ${judged.length} goals.`,
    '',
    '| | workload | Annals | against | its figure | ratio | must | aim | |',
    '|---|---|--:|---|--:|--:|--:|--:|---|',
    ...rows.map(tableRow),
    '',
  ].join('\n')
}

function tableRow(row) {
  const { number, title, unit, ours, theirs, ratio, must, aim, note } = row
  const cells = [
    number ?? '',
    ours.name === 'annals' ? title : `${title}: ${ours.name}`,
    figure(ours.value, unit),
    theirs?.name ?? note ?? '',
    theirs === undefined ? '' : figure(theirs.value, unit),
    ratio === undefined ? '' : times(ratio),
    goal(must, unit),
    aim === undefined ? '' : must?.atLeast === undefined ? figure(aim, unit) : times(aim),
    [verdict(row), noisy(row) ? 'noisy' : ''].filter(Boolean).join(', '),
  ]
  return `| ${cells.join(' | ')} |`
}

function goal(must, unit) {
  if (must === undefined) return ''
  if (must.atLeast !== undefined) return `≥ ${times(must.atLeast)}`
  return must.floor === undefined ? `≤ ${figure(must.atMost, unit)}` : `≥ ${figure(must.floor, unit)}`
}

function times(ratio) {
  return `${ratio < 10 ? Number(ratio.toFixed(2)) : Math.round(ratio)}×`
}

function figure(value, unit) {
  if (unit === '×') return times(value)
  const rounded =
    value >= 1000 ? Math.round(value / 10 ** (digits(value) - 3)) * 10 ** (digits(value) - 3) : value
  const text =
    rounded >= 100 ? Math.round(rounded).toLocaleString('en') : String(Number(rounded.toPrecision(3)))
  return `${text} ${unit}`
}

function digits(value) {
  return Math.floor(Math.log10(value)) + 1
}

export function write(result, folder) {
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'latest.md'), `${table(result)}\n![The ratios as bars](latest.svg)\n`)
  writeFileSync(join(folder, 'latest.json'), `${JSON.stringify(result, null, 2)}\n`)
  writeFileSync(join(folder, 'latest.svg'), plot(result.rows))
  console.error(`written to ${folder}`)
}
