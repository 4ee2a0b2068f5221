import { keyName, random, randomIndexes } from '../data.mjs'

/** Stored bytes against stored text of the same size, both in Annals. */

const KEYS = 1_000
const RUN = 'run-00000'
const order = randomIndexes(1 << 16, KEYS, 23)
const keyAt = n => keyName(order[n & (order.length - 1)])

/** Values of one size: ASCII text, or the bytes of that text. */
function valuesOf(kind, size) {
  const next = random(size)
  return Array.from({ length: 16 }, () => {
    const text = Array.from({ length: size }, () => Math.floor(next() * 36).toString(36)).join('')
    return kind === 'bytes' ? Buffer.from(text) : text
  })
}

const put = size => async (store, contestant) => {
  const values = valuesOf(contestant.name, size)
  let next = 0
  return () => {
    const n = next++
    return store.put(store.at(RUN, keyAt(n)), values[n & 15])
  }
}

const get = size => async (store, contestant) => {
  const values = valuesOf(contestant.name, size)
  for (let i = 0; i < KEYS; i++) await store.put(store.at(RUN, keyName(i)), values[i & 15])
  let next = 0
  return () => store.get(store.at(RUN, keyAt(next++)))
}

export const cases = [400, 4_096, 65_536].flatMap(size =>
  [
    { title: `put of ${size} bytes`, inFlight: 64, prepare: put(size) },
    {
      title: `get of ${size} bytes`,
      inFlight: 1,
      prepare: get(size),
      verify: found => found.length === size,
    },
  ].map(one => ({
    ...one,
    number: 'W10',
    title: `bytes against text, relaxed: ${one.title}`,
    contestants: ['bytes', 'text'].map(name => ({ name, peer: 'annals', durability: 'relaxed' })),
    compare: [{ ours: 'bytes', theirs: 'text', must: 0.9, aim: 1 }],
  })),
)
