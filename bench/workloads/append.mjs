import { runName, stepKey, value } from '../data.mjs'

const RUNS = 64
const BATCH = 1000
const KNOWN = 10_000
const TYPE = 'tool_call'

async function appendNew(store) {
  let next = 0
  return () => store.append(runName(0), TYPE, value(next++))
}

async function appendBatches(store) {
  let next = 0
  return () =>
    store.appendMany(
      runName(0),
      Array.from({ length: BATCH }, () => ({ type: TYPE, payload: value(next++) })),
    )
}

/** Lane n appends to run n, or all lanes to one run. Each event has its own dedupe key. */
async function appendOnce(store, { oneRun }) {
  const runs = Array.from({ length: RUNS }, (_, i) => runName(oneRun ? 0 : i))
  const counts = new Array(RUNS).fill(0)
  return lane => {
    const n = counts[lane]++
    return store.appendOnce(runs[lane], value(n + lane), stepKey(n, lane))
  }
}

/** Appends events that are all stored already. */
async function appendAgain(store) {
  const events = Array.from({ length: KNOWN }, (_, i) => [value(i), stepKey(i)])
  for (let i = 0; i < KNOWN; i += BATCH) await store.appendManyOnce(runName(0), events.slice(i, i + BATCH))
  const again =
    (await store.prepared?.(runName(0), events)) ?? (i => store.appendOnce(runName(0), ...events[i]))
  let next = 0
  return () => again(next++ % KNOWN)
}

async function appendManyOnce(store) {
  let next = 0
  return () =>
    store.appendManyOnce(
      runName(0),
      Array.from({ length: BATCH }, () => {
        const i = next++
        return [value(i), stepKey(i)]
      }),
    )
}

function contestants(durability, ...peers) {
  return ['annals', ...peers].map(peer => ({ name: peer, peer, durability }))
}

/** Contestants that store run events. The peers store the same events and keep their keys unique too. */
function ledgerContestants(durability, ...peers) {
  return [
    { name: 'annals', peer: 'annals-ledger', durability },
    ...contestants(durability, ...peers)
      .slice(1)
      .map(contestant => ({ ...contestant, runEvents: true })),
  ]
}

/** For comparison: lmdb stores only the payload, under a short key that grows. */
const PAYLOAD_ALONE = 'lmdb, payload alone, short keys in order'

function payloadAlone(durability) {
  return { name: PAYLOAD_ALONE, peer: 'lmdb', durability }
}

export const cases = [
  {
    number: 'W1',
    title: 'run event, durable, 1 in flight',
    inFlight: 1,
    // At five thousand operations a second, V8 needs several rounds to compile the code.
    warmUp: 4,
    contestants: ledgerContestants('durable', 'better-sqlite3', 'lmdb'),
    compare: [{ theirs: 'better-sqlite3', must: 1.05, aim: 1.3 }, { theirs: 'lmdb' }],
    prepare: appendOnce,
  },
  {
    number: 'W1',
    title: 'run event, durable, 64 in flight over 64 runs',
    inFlight: RUNS,
    contestants: [
      ...ledgerContestants('durable', 'lmdb', 'better-sqlite3'),
      payloadAlone('durable'),
      { name: 'annals, all on one run', peer: 'annals-ledger', durability: 'durable', oneRun: true },
    ],
    compare: [
      { theirs: 'lmdb', must: 2, aim: 3 },
      { theirs: 'better-sqlite3' },
      { theirs: PAYLOAD_ALONE },
      { ours: 'annals, all on one run', theirs: 'annals', must: 0.7, aim: 1 },
    ],
    prepare: appendOnce,
  },
  {
    number: 'W2',
    title: 'append, relaxed, 1 in flight',
    inFlight: 1,
    contestants: contestants('relaxed', 'lmdb', 'better-sqlite3'),
    compare: [
      { theirs: 'lmdb', must: 1.5, aim: 2.5 },
      { theirs: 'better-sqlite3', must: 3.5, aim: 5 },
    ],
    prepare: appendNew,
  },
  {
    number: 'W2',
    title: 'run event, relaxed, 1 in flight',
    inFlight: 1,
    // Checkpoints and the projector run a few times a second, so V8 compiles them only after seconds.
    warmUp: 4,
    contestants: [...ledgerContestants('relaxed', 'lmdb', 'better-sqlite3'), payloadAlone('relaxed')],
    compare: [
      { theirs: 'lmdb', must: 1.5, aim: 2.5 },
      { theirs: 'better-sqlite3', must: 3.5, aim: 5 },
      { theirs: PAYLOAD_ALONE },
    ],
    prepare: appendOnce,
  },
  {
    number: 'W3',
    title: 'run events, durable, 1,000 a transaction',
    unit: 'events/s',
    inFlight: 1,
    perStep: BATCH,
    contestants: [...ledgerContestants('durable', 'better-sqlite3', 'lmdb'), payloadAlone('durable')],
    compare: [
      { theirs: 'better-sqlite3', must: 1.25, aim: 2 },
      { theirs: 'lmdb' },
      { theirs: PAYLOAD_ALONE },
    ],
    prepare: appendManyOnce,
    verify: answers => answers.length === BATCH,
  },
  {
    number: 'W3',
    title: 'append, durable, 1,000 a transaction',
    unit: 'events/s',
    inFlight: 1,
    perStep: BATCH,
    contestants: contestants('durable', 'better-sqlite3', 'lmdb'),
    compare: [{ theirs: 'better-sqlite3', must: 1.25, aim: 2 }, { theirs: 'lmdb' }],
    prepare: appendBatches,
    verify: receipts => receipts.length === BATCH && receipts[BATCH - 1].hash.length === 64,
  },
  {
    number: 'W4',
    title: 'run event that is known already',
    inFlight: 1,
    contestants: [
      ...ledgerContestants('durable', 'lmdb', 'better-sqlite3'),
      {
        name: 'lmdb, a read before the transaction',
        peer: 'lmdb',
        durability: 'durable',
        readFirst: true,
        runEvents: true,
      },
      payloadAlone('durable'),
    ],
    compare: [
      { theirs: 'lmdb', must: 1.3, aim: 3 },
      { theirs: 'lmdb, a read before the transaction' },
      { theirs: PAYLOAD_ALONE },
      { theirs: 'better-sqlite3' },
    ],
    prepare: appendAgain,
    verify: ({ duplicate }) => duplicate,
  },
]
