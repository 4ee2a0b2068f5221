import { ENTRIES_PER_RUN, placeByRun, randomIndexes } from '../data.mjs'
import { load } from './load.mjs'

const KEYS = 100_000
const LIMIT = 100

export const cases = [
  {
    title: 'list of 100',
    unit: 'lists/s',
    inFlight: 1,
    contestants: ['annals', 'lmdb', 'better-sqlite3', 'classic-level'].map(peer => ({
      name: peer,
      peer,
      durability: 'relaxed',
    })),
    compare: [{ theirs: 'lmdb', must: 2, aim: 4 }, { theirs: 'better-sqlite3' }, { theirs: 'classic-level' }],
    async prepare(store) {
      await load(store, KEYS, placeByRun)
      const starts = Array.from(randomIndexes(1 << 14, KEYS, 13), i =>
        i % ENTRIES_PER_RUN > ENTRIES_PER_RUN - LIMIT ? i - LIMIT : i,
      )
      const places = starts.map(i => store.at(...placeByRun(i)))
      let next = 0
      return () => store.list(places[next++ & (places.length - 1)], LIMIT)
    },
    // Looks at every value: one that is made only when looked at would be too cheap.
    verify: found => found.length === LIMIT && found.every(entry => (entry.value ?? entry[1]).length === 400),
  },
]
