import { runName, value } from '../data.mjs'

const RUNS = 64
const BATCH = 1000
const KNOWN = 10_000

/** Lane n appends to run n, each event with a dedupe key of its own. */
async function appendNew(store, { oneRun }) {
  const runs = Array.from({ length: RUNS }, (_, i) => runName(oneRun ? 0 : i))
  let next = 0
  return lane => {
    const i = next++
    return store.append(runs[lane], value(i), `step-${i}`)
  }
}

async function appendBatches(store) {
  let next = 0
  return () => {
    const events = Array.from({ length: BATCH }, () => {
      const i = next++
      return [value(i), `step-${i}`]
    })
    return store.appendMany(runName(0), events)
  }
}

/** Every event is there already. */
async function appendAgain(store) {
  const events = Array.from({ length: KNOWN }, (_, i) => [value(i), `step-${i}`])
  for (let i = 0; i < KNOWN; i += BATCH) await store.appendMany(runName(0), events.slice(i, i + BATCH))
  let next = 0
  return () => {
    const [body, dedupeKey] = events[next++ % KNOWN]
    return store.append(runName(0), body, dedupeKey)
  }
}

function contestants(durability, ...peers) {
  return ['annals', ...peers].map(peer => ({ name: peer, peer, durability }))
}

export const cases = [
  {
    title: 'append, durable, 1 in flight',
    inFlight: 1,
    contestants: contestants('durable', 'better-sqlite3', 'lmdb'),
    compare: [{ theirs: 'better-sqlite3', must: 1.15, aim: 1.3 }, { theirs: 'lmdb' }],
    prepare: appendNew,
  },
  {
    title: 'append, durable, 64 in flight over 64 runs',
    inFlight: RUNS,
    contestants: [
      ...contestants('durable', 'lmdb', 'better-sqlite3'),
      { name: 'annals, all on one run', peer: 'annals', durability: 'durable', oneRun: true },
    ],
    compare: [
      { theirs: 'lmdb', must: 2, aim: 3 },
      { theirs: 'better-sqlite3' },
      { ours: 'annals, all on one run', theirs: 'annals', must: 0.7, aim: 1 },
    ],
    prepare: appendNew,
  },
  {
    title: 'append, relaxed, 1 in flight',
    inFlight: 1,
    contestants: contestants('relaxed', 'lmdb', 'better-sqlite3'),
    compare: [
      { theirs: 'lmdb', must: 1.8, aim: 2.5 },
      { theirs: 'better-sqlite3', must: 4, aim: 5 },
    ],
    prepare: appendNew,
  },
  {
    title: 'append, durable, 1,000 a transaction',
    unit: 'events/s',
    inFlight: 1,
    perStep: BATCH,
    contestants: contestants('durable', 'better-sqlite3', 'lmdb'),
    compare: [{ theirs: 'better-sqlite3', must: 1.25, aim: 1.3 }, { theirs: 'lmdb' }],
    prepare: appendBatches,
  },
  {
    title: 'append of a known event',
    inFlight: 1,
    contestants: [
      ...contestants('durable', 'lmdb', 'better-sqlite3'),
      { name: 'lmdb, a read before the transaction', peer: 'lmdb', durability: 'durable', readFirst: true },
    ],
    compare: [
      { theirs: 'lmdb', must: 3, aim: 4 },
      { theirs: 'lmdb, a read before the transaction' },
      { theirs: 'better-sqlite3' },
    ],
    prepare: appendAgain,
    verify: ({ duplicate }) => duplicate,
  },
]
