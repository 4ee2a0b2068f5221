import { keyName, randomIndexes, value } from '../data.mjs'

const CELLS = 1000

async function swapAnywhere(store) {
  const places = Array.from({ length: CELLS }, (_, i) => store.at('cells', keyName(i)))
  const versions = []
  for (const [i, place] of places.entries()) versions.push(await store.createCell(place, value(i)))
  const order = randomIndexes(1 << 16, CELLS, 17)
  let next = 0
  return async () => {
    const i = next++
    const cell = order[i & (order.length - 1)]
    versions[cell] = await store.cas(places[cell], versions[cell], value(i))
    if (!versions[cell]) throw new Error('a compare-and-swap without a rival has lost')
  }
}

function contestants(durability) {
  return ['annals', 'better-sqlite3', 'lmdb'].map(peer => ({ name: peer, peer, durability, versions: true }))
}

export const cases = [
  {
    number: 'W7',
    title: 'compare-and-swap, durable, 1 in flight',
    inFlight: 1,
    contestants: contestants('durable'),
    compare: [{ theirs: 'better-sqlite3', must: 0.95, aim: 1.2 }, { theirs: 'lmdb' }],
    prepare: swapAnywhere,
  },
  {
    number: 'W7',
    title: 'compare-and-swap, relaxed, 1 in flight',
    inFlight: 1,
    contestants: contestants('relaxed'),
    compare: [{ theirs: 'lmdb', must: 1.4, aim: 3 }, { theirs: 'better-sqlite3' }],
    prepare: swapAnywhere,
  },
]
