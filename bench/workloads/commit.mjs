import { ENTRIES_PER_RUN, keyName, randomIndexes, runName, value } from '../data.mjs'

const RUNS = 64

export const cases = [
  {
    number: 'W6',
    title: 'put, durable, 64 in flight over 64 runs',
    inFlight: RUNS,
    contestants: [
      { name: 'annals', peer: 'annals', durability: 'durable' },
      { name: 'annals, all on one run', peer: 'annals', durability: 'durable', oneRun: true },
      { name: 'lmdb', peer: 'lmdb', durability: 'durable' },
      { name: 'better-sqlite3', peer: 'better-sqlite3', durability: 'durable' },
      { name: 'classic-level', peer: 'classic-level', durability: 'durable' },
    ],
    compare: [
      { theirs: 'lmdb', must: 2, aim: 3 },
      { theirs: 'better-sqlite3' },
      { theirs: 'classic-level' },
      { ours: 'annals, all on one run', theirs: 'annals', must: 0.7, aim: 1 },
    ],
    async prepare(store, { oneRun }) {
      const keys = Array.from({ length: ENTRIES_PER_RUN }, (_, i) => keyName(i))
      const places = Array.from({ length: RUNS }, (_, run) =>
        keys.map(key => store.at(oneRun ? runName(0) : runName(run), key)),
      )
      const order = randomIndexes(1 << 16, ENTRIES_PER_RUN, 19)
      let next = 0
      return lane => {
        const i = next++
        return store.put(places[lane][order[i & (order.length - 1)]], value(i))
      }
    },
  },
  {
    number: 'W6',
    title: 'put, durable, 1 in flight',
    inFlight: 1,
    contestants: ['annals', 'better-sqlite3', 'lmdb', 'classic-level'].map(peer => ({
      name: peer,
      peer,
      durability: 'durable',
    })),
    compare: [{ theirs: 'better-sqlite3' }, { theirs: 'lmdb' }, { theirs: 'classic-level' }],
    async prepare(store) {
      const places = Array.from({ length: ENTRIES_PER_RUN }, (_, i) => store.at(runName(0), keyName(i)))
      const order = randomIndexes(1 << 16, ENTRIES_PER_RUN, 23)
      let next = 0
      return () => {
        const i = next++
        return store.put(places[order[i & (order.length - 1)]], value(i))
      }
    },
  },
]
