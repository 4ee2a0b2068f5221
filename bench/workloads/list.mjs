import { ENTRIES_PER_RUN, isValue, placeByRun, randomIndexes } from '../data.mjs'
import { load } from './load.mjs'

const KEYS = 100_000
const LIMIT = 100

const contestants = ['annals', 'lmdb', 'better-sqlite3', 'classic-level'].map(peer => ({
  name: peer,
  peer,
  durability: 'relaxed',
}))

/** Loads the data and picks places that are followed by at least a hundred entries. */
async function loadAndPick(store) {
  await load(store, KEYS, placeByRun)
  const starts = Array.from(randomIndexes(1 << 14, KEYS, 13), i =>
    i % ENTRIES_PER_RUN >= ENTRIES_PER_RUN - LIMIT ? i - LIMIT : i,
  )
  return starts.map(i => store.at(...placeByRun(i)))
}

export const cases = [
  {
    number: 'W6',
    title: 'list of 100 keys',
    unit: 'lists/s',
    inFlight: 1,
    contestants,
    compare: [{ theirs: 'lmdb', must: 2, aim: 4 }, { theirs: 'better-sqlite3' }, { theirs: 'classic-level' }],
    async prepare(store) {
      const places = await loadAndPick(store)
      let next = 0
      return () => store.list(places[next++ & (places.length - 1)], LIMIT)
    },
    verify: keys => keys.length === LIMIT && keys.every(key => key.length === 12),
  },
  {
    number: 'W6',
    title: '100 entries, parsed',
    unit: 'lists/s',
    inFlight: 1,
    contestants,
    compare: [{ theirs: 'lmdb' }, { theirs: 'better-sqlite3' }, { theirs: 'classic-level' }],
    async prepare(store) {
      const places = await loadAndPick(store)
      let next = 0
      return () => store.entries(places[next++ & (places.length - 1)], LIMIT)
    },
    verify: entries => entries.length === LIMIT && entries.every(([, value]) => isValue(value)),
  },
]
