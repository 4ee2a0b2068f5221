import { ENTRIES_PER_RUN, isValue, randomIndexes, runName, value } from '../data.mjs'

const RUNS = 50
const EVENTS = RUNS * ENTRIES_PER_RUN
const RANGE = 1000

/** Loads fifty runs of a thousand events and reads each event once. */
async function loadEvents(store) {
  const runs = Array.from({ length: RUNS }, (_, i) => runName(i))
  for (const [i, run] of runs.entries()) {
    await store.appendMany(
      run,
      Array.from({ length: ENTRIES_PER_RUN }, (_, n) => ({ type: 'tool_call', payload: value(i + n) })),
    )
  }
  for (const run of runs) {
    for (let sequence = 0; sequence < ENTRIES_PER_RUN; sequence++) await store.read(run, sequence)
  }
  return runs
}

const contestants = ['annals', 'lmdb', 'better-sqlite3'].map(peer => ({
  name: peer,
  peer,
  durability: 'relaxed',
}))

function isEvent(event) {
  return event.hash.length === 64 && event.prevHash.length === 64 && isValue(event.payload)
}

export const cases = [
  {
    number: 'W5',
    title: 'range of 1,000 events, parsed',
    unit: 'events/s',
    inFlight: 1,
    perStep: RANGE,
    contestants,
    compare: [{ theirs: 'lmdb', must: 1.3, aim: 2 }, { theirs: 'better-sqlite3' }],
    async prepare(store) {
      const runs = await loadEvents(store)
      let next = 0
      return () => store.readRange(runs[next++ % RUNS], 0, RANGE)
    },
    verify: events => events.length === RANGE && isEvent(events[0]) && isEvent(events[RANGE - 1]),
  },
  {
    number: 'W5',
    title: 'event by its sequence, parsed',
    inFlight: 1,
    contestants,
    compare: [{ theirs: 'lmdb', must: 0.9, aim: 1.6 }, { theirs: 'better-sqlite3' }],
    async prepare(store) {
      const runs = await loadEvents(store)
      const order = randomIndexes(1 << 18, EVENTS, 47)
      let next = 0
      return () => {
        const i = order[next++ & (order.length - 1)]
        return store.read(runs[i % RUNS], Math.floor(i / RUNS))
      }
    },
    verify: isEvent,
  },
]
