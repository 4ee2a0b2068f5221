// A writer for tests that kill it. It uses all primitives, alone and in transactions, with several calls at once. It
// reports each call before it is made and each answer after it is received, in a file that survives the process.
//
//   node primitives-writer.mjs <folder> <report> <settings>
import { openSync, writeSync } from 'node:fs'
import { Annals } from '../../dist/annals.js'
import { openNodeDisk } from '../../dist/disk/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'
import { Database } from '../../dist/engine/database.js'
import { Random } from '../../dist/testing/random.js'

const [folder, reportPath, settingsJson] = process.argv.slice(2)
const { seed, first, durability, dieAtCall, runs } = JSON.parse(settingsJson)
const random = new Random(seed)
const report = openSync(reportPath, 'a')
const tell = facts => writeSync(report, `${JSON.stringify(facts)}\n`)

/** Counts the disk calls. A kill from outside would rarely hit the middle of a commit. */
let calls = 0
function counted(target) {
  return new Proxy(target, {
    get(object, name) {
      const value = Reflect.get(object, name, object)
      if (typeof value !== 'function') return value
      return (...args) => {
        if (++calls === dieAtCall) process.kill(process.pid, 'SIGKILL')
        const result = value.apply(object, args)
        return name === 'open' ? counted(result) : result
      }
    },
  })
}

const storage = await openEmbedded({
  disk: counted(openNodeDisk(folder)),
  durability,
  // Small sizes, so that checkpoints, rotations and evictions are frequent.
  walBytes: 24_000,
  prepareBytes: 8_192,
  cacheBytes: 40_000,
  dirtyBytes: 200_000,
  garbageBytes: 60_000,
  fileBytes: 50_000,
  warn: () => undefined,
})
const db = new Annals({ storage, database: new Database(storage), guards: {} }, 'default')

const MAIN = 'main'
const thought = n => ({ type: 'Thought', content: `thought ${n}` })
const count = ({ value }) => ({ value: value + 1, result: value + 1 })
const door = {
  initial: 'shut',
  transitions: [
    { from: 'shut', event: 'push', to: 'open' },
    { from: 'open', event: 'push', to: 'shut' },
  ],
}

/** Writes to every primitive in one transaction. */
async function writeAll(tx, n, name) {
  await tx.kv.put(`${name}-${n}`, n)
  const receipt = await tx.events.append(name, n)
  await tx.cells.init(`${name}-${n}`, n)
  await tx.cells.transitionOrInit(`${name}s`, 0, count)
  await tx.machines.send('door', 'push')
  await tx.traces.record(thought(n), { id: `${name}-${n}`, tags: [name] })
  return receipt
}

/** Runs that exist and that no pending call uses. */
const idle = [...runs]

const OPERATIONS = {
  async all(n) {
    const { sequence, hash } = await db.transaction(MAIN, tx => writeAll(tx, n, 'all'))
    return { sequence, hash }
  },
  async batch(n) {
    const events = [0, 1, 2].map(part => ({ type: 'batch', payload: [n, part] }))
    return (await db.events.appendBatch(MAIN, events)).map(({ sequence, hash }) => ({ sequence, hash }))
  },
  async put(n) {
    await db.kv.put(MAIN, `put-${n}`, n, random.chance(0.3) ? { ttlMs: 3_600_000 } : {})
  },
  async cell(n) {
    await db.cells.set(MAIN, `cell-${n}`, n)
  },
  async trace(n) {
    await db.traces.recordChild(MAIN, 'root', thought(n), {
      id: `trace-${n}`,
      tags: ['trace', `tag-${n % 5}`],
    })
  },
  async create(n) {
    await db.runs.create({ runId: `run-${n}`, parentRun: MAIN, tags: ['made'], metadata: { n } })
    await db.transaction(`run-${n}`, async tx => {
      await tx.machines.define('door', door)
      await writeAll(tx, n, 'all')
    })
    idle.push(`run-${n}`)
  },
  async tag(_, runId) {
    await db.runs.addTags(runId, ['tagged'])
    idle.push(runId)
  },
  async complete(_, runId) {
    await db.runs.complete(runId).catch(error => {
      if (error.code !== 'INVALID_TRANSITION') throw error
    })
    idle.push(runId)
  },
  async delete(_, runId) {
    const { events, headHash } = await db.runs.delete(runId)
    return { events, headHash }
  },
  async never(n) {
    await db
      .transaction(MAIN, async tx => {
        await writeAll(tx, n, 'never')
        throw new Error('called off')
      })
      .catch(() => undefined)
  },
  /** Leaves a transaction open when the process dies. */
  async open(n) {
    const tx = await db.begin(MAIN)
    await writeAll(tx, n, 'never')
  },
}
const NAMES = [
  'all',
  'all',
  'all',
  'batch',
  'put',
  'cell',
  'trace',
  'create',
  'create',
  'tag',
  'complete',
  'delete',
  'never',
  'open',
]
const ON_RUNS = ['tag', 'complete', 'delete']

let next = first
async function perform() {
  let name = random.pick(NAMES)
  if (ON_RUNS.includes(name) && idle.length === 0) name = 'all'
  const runId = ON_RUNS.includes(name) ? idle.splice(random.below(idle.length), 1)[0] : undefined
  const n = next++
  tell({ asked: n, name, runId })
  const answer = await OPERATIONS[name](n, runId)
  tell({ answered: n, answer })
  writeSync(1, 'answered\n')
}

if ((await db.runs.get(MAIN)) === undefined) await db.runs.create({ runId: MAIN })
await db.machines.define(MAIN, 'door', door)
if ((await db.traces.get(MAIN, 'root')) === undefined)
  await db.traces.record(MAIN, thought(0), { id: 'root' })
for (;;) {
  const crowd = Array.from({ length: 1 + random.below(8) }, perform)
  if (random.chance(0.05)) crowd.push(db.checkpoint())
  await Promise.all(crowd)
}
