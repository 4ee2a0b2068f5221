import { isValue, placeByRun, randomIndexes } from '../data.mjs'
import { load } from './load.mjs'

const KEYS = 100_000

export const cases = [
  {
    number: 'W6',
    title: 'get, random keys, warm',
    inFlight: 1,
    contestants: ['annals', 'lmdb', 'better-sqlite3', 'classic-level'].map(peer => ({
      name: peer,
      peer,
      durability: 'relaxed',
    })),
    compare: [
      { theirs: 'lmdb', must: 0.8, aim: 2 },
      { theirs: 'better-sqlite3' },
      { theirs: 'classic-level' },
    ],
    async prepare(store) {
      await load(store, KEYS, placeByRun)
      // The keys are new strings, because a real lookup never uses the string object that was stored.
      const places = Array.from({ length: KEYS }, (_, i) => store.at(...placeByRun(i)))
      const order = randomIndexes(1 << 18, KEYS, 11)
      for (const place of places) await store.get(place)
      let next = 0
      return () => store.get(places[order[next++ & (order.length - 1)]])
    },
    verify: isValue,
  },
]
