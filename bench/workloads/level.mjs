import { keyName, ownValue, randomIndexes, value } from '../data.mjs'

const KEYS = 100_000
const MANY_KEYS = 1_000_000
const BATCH = 100
const LOADED = 1_000
const RANGE = 1_000

const contestants = [
  { name: 'annals', peer: 'annals-level', durability: 'relaxed' },
  { name: 'classic-level', peer: 'classic-level', durability: 'relaxed' },
]

/** Fills a level with entries in key order. */
async function load({ level }, count, textOf) {
  for (let from = 0; from < count; from += LOADED) {
    await level.batch(
      Array.from({ length: LOADED }, (_, i) => ({
        type: 'put',
        key: keyName(from + i),
        value: textOf(from + i),
      })),
    )
  }
}

const ownText = i => JSON.stringify(ownValue(i))
const texts = Array.from({ length: 1_024 }, (_, i) => JSON.stringify(value(i)))
const order = randomIndexes(1 << 18, KEYS, 17)
/** Random keys, as new strings: a real lookup never uses the string object that was stored. */
const keyAt = n => keyName(order[n & (order.length - 1)])

async function overwrite(store) {
  await load(store, KEYS, ownText)
  let next = 0
  return () => {
    const n = next++
    return store.level.put(keyAt(n), texts[n & 1_023])
  }
}

async function overwriteMany(store) {
  await load(store, KEYS, ownText)
  let next = 0
  return () => {
    const from = next
    next += BATCH
    const operations = Array.from({ length: BATCH }, (_, i) => ({
      type: 'put',
      key: keyAt(from + i),
      value: texts[(from + i) & 1_023],
    }))
    return store.level.batch(operations)
  }
}

async function get(store) {
  await load(store, KEYS, ownText)
  let next = 0
  return () => store.level.get(keyAt(next++))
}

/** Iterates over a thousand entries with `read`, from a random one on. */
function iterate(read) {
  return async store => {
    await load(store, KEYS, ownText)
    let next = 0
    return () =>
      read(
        store.level.iterator({
          gte: keyName(order[next++ & (order.length - 1)] % (KEYS - RANGE)),
          limit: RANGE,
        }),
      )
  }
}

async function count(iterator) {
  let entries = 0
  for await (const [, text] of iterator) if (text.length > 300) entries++
  return entries
}

async function lastKey(store) {
  await load(store, MANY_KEYS, String)
  return async () => (await store.level.keys({ reverse: true, limit: 1 }).all())[0]
}

export const cases = [
  { title: 'put, 1 in flight', inFlight: 1, prepare: overwrite },
  { title: 'put, 64 in flight', inFlight: 64, prepare: overwrite },
  { title: 'get', inFlight: 1, prepare: get, verify: text => text.length > 300 },
  { title: 'batches of 100 puts', inFlight: 1, perStep: BATCH, unit: 'puts/s', prepare: overwriteMany },
  {
    title: 'iterate over 1,000 entries, all()',
    inFlight: 1,
    perStep: RANGE,
    unit: 'entries/s',
    prepare: iterate(iterator => iterator.all()),
    verify: entries => entries.length === RANGE,
  },
  {
    title: 'iterate over 1,000 entries, for await',
    inFlight: 1,
    perStep: RANGE,
    unit: 'entries/s',
    prepare: iterate(count),
    verify: entries => entries === RANGE,
  },
  {
    title: 'the last key of 1,000,000',
    inFlight: 1,
    prepare: lastKey,
    verify: key => key === keyName(MANY_KEYS - 1),
  },
].map(({ title, ...rest }) => ({
  ...rest,
  number: 'W10',
  title: `abstract-level, relaxed: ${title}`,
  contestants,
  compare: [{ theirs: 'classic-level', must: 1, aim: 2 }],
}))
