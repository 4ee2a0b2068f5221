import { ENTRIES_PER_RUN, keyName, placeByRun, randomIndexes, runName, value } from '../data.mjs'
import { load } from './load.mjs'

const KEYS = 100_000

const contestants = [
  { name: 'annals', peer: 'annals', durability: 'relaxed' },
  { name: 'lmdb', peer: 'lmdb', durability: 'relaxed' },
  { name: 'lmdb, writemap', peer: 'lmdb', durability: 'relaxed', writeMap: true },
  { name: 'better-sqlite3', peer: 'better-sqlite3', durability: 'relaxed' },
  { name: 'classic-level', peer: 'classic-level', durability: 'relaxed' },
]
/** Overwriting a random key changes another leaf each time, so its goal is lower than that of keys in order. */
const RANDOM_MUST = 1.15
const IN_ORDER_MUST = 1.5

function compare(must) {
  return [
    { theirs: 'lmdb', must, aim: 2 },
    { theirs: 'lmdb, writemap' },
    { theirs: 'better-sqlite3' },
    { theirs: 'classic-level' },
  ]
}

/** Overwrites random entries of 100,000 in a hundred runs. */
async function overwriteAnywhere(store) {
  await load(store, KEYS, placeByRun)
  const places = Array.from({ length: KEYS }, (_, i) => store.at(...placeByRun(i)))
  const order = randomIndexes(1 << 18, KEYS, 7)
  let next = 0
  return () => {
    const i = next++
    return store.put(places[order[i & (order.length - 1)]], value(i))
  }
}

/** Adds entries, run by run, in key order. */
async function addInOrder(store) {
  const keys = Array.from({ length: ENTRIES_PER_RUN }, (_, i) => keyName(i))
  let next = 0
  let run = ''
  return () => {
    const i = next++
    const inRun = i % ENTRIES_PER_RUN
    if (inRun === 0) run = runName(i / ENTRIES_PER_RUN)
    return store.put(store.at(run, keys[inRun]), value(i))
  }
}

export const cases = [
  { title: 'random keys, 1 in flight', inFlight: 1, prepare: overwriteAnywhere, must: RANDOM_MUST },
  { title: 'random keys, 64 in flight', inFlight: 64, prepare: overwriteAnywhere, must: RANDOM_MUST },
  { title: 'keys in order, 1 in flight', inFlight: 1, prepare: addInOrder, must: IN_ORDER_MUST },
  { title: 'keys in order, 64 in flight', inFlight: 64, prepare: addInOrder, must: IN_ORDER_MUST },
].map(({ title, inFlight, prepare, must }) => ({
  number: 'W6',
  title: `put, relaxed, ${title}`,
  inFlight,
  prepare,
  contestants,
  compare: compare(must),
}))
