import { runName, stepKey, value } from '../data.mjs'

const CONNECTIONS = 32

/** Lane n appends to run n, each event with its own key: in the process, and over HTTP with a connection for each lane. */
async function appendOnce(store) {
  const runs = Array.from({ length: CONNECTIONS }, (_, i) => runName(i))
  const counts = new Array(CONNECTIONS).fill(0)
  return lane => {
    const n = counts[lane]++
    return store.appendOnce(runs[lane], value(n + lane), stepKey(n, lane))
  }
}

export const cases = [
  {
    number: 'W12',
    title: `run event, durable, ${CONNECTIONS} in flight: over HTTP, ${CONNECTIONS} connections`,
    inFlight: CONNECTIONS,
    // A server runs for days, and V8 needs thousands of requests to compile the code between the socket and the log.
    warmUp: 4,
    contestants: [
      { name: 'annals over HTTP', peer: 'annals-http', durability: 'durable' },
      { name: 'annals in the process', peer: 'annals-ledger', durability: 'durable' },
    ],
    compare: [{ ours: 'annals over HTTP', theirs: 'annals in the process', must: 0.38, aim: 0.7 }],
    floors: [{ ours: 'annals over HTTP', floor: 10_000 }],
    prepare: appendOnce,
    verify: ({ duplicate }) => !duplicate,
  },
]
