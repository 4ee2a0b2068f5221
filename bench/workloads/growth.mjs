import { mkdirSync, rmSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { ENTRIES_PER_RUN, keyName, placeByRun, random, runName, value } from '../data.mjs'
import { median } from '../measure.mjs'
import { runJob, withFolder } from '../processes.mjs'

const MODULE = './workloads/growth.mjs'
const ENTRIES = 5_000_000
const FEW = 10_000
const WINDOWS = 5
const WINDOW = 20_000
const ACTIVE_RUNS = 64
const READS = 100_000

/** How each kind of data is added: a thousand in one commit, and one alone. */
const KINDS = {
  entries: {
    many: (store, run) =>
      store.putMany(
        Array.from({ length: ENTRIES_PER_RUN }, (_, i) => [
          store.at(runName(run), keyName(i)),
          value(run + i),
        ]),
      ),
    one: (store, run, i) => store.put(store.at(run, keyName(i)), value(i)),
  },
  events: {
    many: (store, run) =>
      store.appendManyOnce(
        runName(run),
        Array.from({ length: ENTRIES_PER_RUN }, (_, i) => [value(run + i), `step-${i}`]),
      ),
    one: (store, run, i) => store.appendOnce(run, value(i), `step-${i}`),
  },
}

/** Writes five million entries, then five million events, and measures the cost of one more and the memory. */
export async function run() {
  const rows = []
  for (const [kind, peers] of [
    ['entries', ['annals-port', 'lmdb', 'better-sqlite3']],
    ['events', ['annals-port']],
  ]) {
    const found = new Map()
    for (const peer of peers) {
      console.error(`growth: 5 M ${kind}, ${peer}`)
      found.set(peer, await withFolder(folder => measure({ folder, peer, kind })))
    }
    rows.push(...rowsOf(kind, found))
  }
  return rows
}

async function measure(argument) {
  const written = await runJob(MODULE, 'grow', argument)
  if (argument.kind === 'events') return written
  const read = await runJob(MODULE, 'readCold', argument)
  return { ...written, ...read }
}

function rowsOf(kind, found) {
  const { costs, ...ours } = found.get('annals-port')
  const others = [...found].slice(1)
  const against = (title, unit, pick, goal = {}) =>
    others.length === 0
      ? [{ title, unit, ours: { name: 'annals', value: pick(ours) }, ...goal }]
      : others.map(([name, theirs], i) => ({
          title,
          unit,
          ours: { name: 'annals', value: pick(ours) },
          theirs: { name, value: pick(theirs) },
          ...(unit.endsWith('/s') ? { ratio: pick(ours) / pick(theirs) } : {}),
          ...(i === 0 ? goal : {}),
        }))
  const costRatio = ({ few, many }) => many / few
  return [
    {
      title: `cost of one more at 5 M ${kind}, against that at 10 k`,
      unit: '×',
      ours: { name: 'annals', value: costRatio(costs) },
      must: { atMost: 1.3 },
      note: `${costs.few.toFixed(1)} µs, then ${costs.many.toFixed(1)} µs`,
    },
    ...others.map(([name, theirs]) => ({
      title: `cost of one more at 5 M ${kind}, against that at 10 k`,
      unit: '×',
      ours: { name: 'annals', value: costRatio(costs) },
      theirs: { name, value: costRatio(theirs.costs) },
    })),
    ...against(`5 M ${kind} written, 1,000 a commit, relaxed`, `${kind}/s`, ({ rate }) => rate),
    ...against(
      `resident at most, 5 M ${kind} written${kind === 'entries' ? ' and read' : ''}`,
      'MB',
      ({ mb }) => mb,
      {
        must: { atMost: 300 },
      },
    ),
    ...(kind === 'entries'
      ? [
          ...against(
            'get, random of 5 M, from a process that just opened',
            'ops/s',
            ({ coldRate }) => coldRate,
          ),
          ...against('resident at most, while reading so', 'MB', ({ coldMb }) => coldMb, {
            must: { atMost: 300 },
          }),
        ]
      : []),
  ]
}

async function openPeer(peer, folder) {
  const { openStore } = await import(`../peers/${peer}.mjs`)
  mkdirSync(folder, { recursive: true })
  return openStore(folder, { durability: 'relaxed', inFlight: 1 })
}

export async function grow({ folder, peer, kind }) {
  const few = async () => {
    const small = await openPeer(peer, `${folder}/small`)
    await fill(small, kind, FEW)
    const costs = await costsOfOne(small, kind)
    await small.close()
    rmSync(`${folder}/small`, { recursive: true })
    return costs
  }
  await few() // warms up the code, because a cold start would make "at 10 k" look slow
  const before = await few()
  const store = await openPeer(peer, `${folder}/store`)
  const start = performance.now()
  await fill(store, kind, ENTRIES)
  const rate = (ENTRIES / (performance.now() - start)) * 1000
  const many = await costsOfOne(store, kind)
  if (kind === 'entries') await readAnywhere(store)
  const mb = peakMb()
  await store.close()
  const after = await few()
  return { rate, mb, costs: { few: median([...before, ...after]), many: median(many) } }
}

export async function readCold({ folder, peer }) {
  const store = await openPeer(peer, `${folder}/store`)
  const coldRate = await readAnywhere(store)
  const coldMb = peakMb()
  await store.close()
  return { coldRate, coldMb }
}

async function fill(store, kind, count) {
  for (let run = 0; run < count / ENTRIES_PER_RUN; run++) {
    await KINDS[kind].many(store, run)
    await nextTurn()
  }
}

/** Microseconds per addition with one in flight, in 64 new runs that grow together: one figure for each window. */
async function costsOfOne(store, kind) {
  const runs = Array.from({ length: ACTIVE_RUNS }, (_, i) => `active-${i}`)
  const costs = []
  for (let window = 0; window < WINDOWS; window++) {
    const start = performance.now()
    for (let i = 0; i < WINDOW; i++) {
      const n = window * WINDOW + i
      await KINDS[kind].one(store, runs[n % ACTIVE_RUNS], Math.floor(n / ACTIVE_RUNS))
      if (i % 64 === 0) await nextTurn()
    }
    costs.push(((performance.now() - start) / WINDOW) * 1000)
  }
  return costs
}

async function readAnywhere(store) {
  const next = random(31)
  const start = performance.now()
  for (let i = 0; i < READS; i++) {
    const found = await store.get(store.at(...placeByRun(Math.floor(next() * ENTRIES))))
    if (found === undefined) throw new Error('an entry is missing')
    if (i % 64 === 0) await nextTurn()
  }
  return (READS / (performance.now() - start)) * 1000
}

function peakMb() {
  return (process.resourceUsage().maxRSS * 1024) / 1e6
}
