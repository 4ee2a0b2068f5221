import { mkdirSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { placeByRun, randomIndexes, shuffled, VALUE_BYTES, value } from '../data.mjs'
import { runJob, withFolder } from '../processes.mjs'
import { load } from './load.mjs'

const MODULE = './workloads/checkpoint.mjs'
const KEYS = 100_000
const OVERWRITES = 10
const BATCH = 1000
const LAG_RESOLUTION_MS = 1
const LIVE_BYTES = (KEYS / 2) * (placeByRun(0)[1].length + VALUE_BYTES)

/** Measures put latency and event-loop lag during checkpoints, and the disk space of overwritten and deleted data. */
export async function run({ seconds, rounds }) {
  const rows = []
  for (const [title, checkpoints] of [
    ['no checkpoint asked for', false],
    ['checkpoints one after the other', true],
  ]) {
    for (const durability of ['relaxed', 'durable']) {
      console.error(`checkpoint: put, ${durability}, ${title}`)
      const argument = { durability, checkpoints, milliseconds: seconds * rounds * 1000 }
      const felt = await withFolder(folder => runJob(MODULE, 'feel', { folder, ...argument }))
      rows.push(...latencyRows(`put, ${durability}, ${title}`, felt))
    }
  }
  const sizes = new Map()
  for (const peer of ['annals-port', 'lmdb', 'better-sqlite3']) {
    console.error(`checkpoint: room, ${peer}`)
    sizes.set(peer, await withFolder(folder => runJob(MODULE, 'churn', { folder, peer })))
  }
  return [...rows, ...roomRows(sizes)]
}

function latencyRows(title, { put, lag, checkpoints }) {
  const us = microseconds => `${Math.round(microseconds).toLocaleString('en')} µs`
  return [
    {
      title: `${title}: p99.9`,
      unit: 'µs',
      ours: { name: 'annals', value: put.p999 },
      note: `p50 ${us(put.p50)}, p99 ${us(put.p99)}, longest ${us(put.max)}; ${checkpoints} checkpoints`,
    },
    {
      title: `${title}: event-loop lag, p99`,
      unit: 'µs',
      ours: { name: 'annals', value: lag.p99 },
      note: `longest ${us(lag.max)}`,
    },
  ]
}

function roomRows(sizes) {
  const title = `room against live data: ${KEYS / 1000} k keys overwritten ${OVERWRITES} times, half deleted`
  return [...sizes].slice(1).map(([name, bytes]) => ({
    title,
    unit: '×',
    ours: { name: 'annals', value: sizes.get('annals-port') / LIVE_BYTES },
    theirs: { name, value: bytes / LIVE_BYTES },
  }))
}

/** Puts one of 100,000 entries at random in each turn of the event loop. */
export async function feel({ folder, durability, checkpoints, milliseconds }) {
  const { openStore } = await import('../peers/annals-port.mjs')
  const store = await openStore(folder, { durability })
  await load(store, KEYS, placeByRun)
  await store.checkpoint()
  const places = Array.from({ length: KEYS }, (_, i) => store.at(...placeByRun(i)))
  const order = randomIndexes(1 << 18, KEYS, 37)
  const put = i => store.put(places[order[i & (order.length - 1)]], value(i))
  for (let i = 0; i < 5000; i++) await put(i)

  let going = true
  let count = 0
  const checkpointer = (async () => {
    while (going && checkpoints) {
      await store.checkpoint()
      await nextTurn()
      count++
    }
  })()
  const loop = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS })
  loop.enable()
  const latencies = []
  const end = performance.now() + milliseconds
  for (let i = 0; performance.now() < end; i++) {
    const start = performance.now()
    await put(i)
    latencies.push((performance.now() - start) * 1000)
    await nextTurn()
  }
  loop.disable()
  going = false
  await checkpointer
  await store.close()
  const lagOf = nanoseconds => Math.max(0, nanoseconds / 1000 - LAG_RESOLUTION_MS * 1000)
  return {
    put: percentiles(latencies),
    lag: { p99: lagOf(loop.percentile(99)), max: lagOf(loop.max) },
    checkpoints: count,
  }
}

function percentiles(list) {
  const sorted = Float64Array.from(list).sort()
  const at = share => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
  return { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: sorted.at(-1) }
}

export async function churn({ folder, peer }) {
  mkdirSync(folder, { recursive: true })
  const { openStore } = await import(`../peers/${peer}.mjs`)
  const store = await openStore(folder, { durability: 'relaxed', inFlight: 1 })
  for (let time = 0; time < OVERWRITES; time++) await load(store, KEYS, placeByRun, shuffled(KEYS, 41 + time))
  const doomed = shuffled(KEYS, 43).subarray(0, KEYS / 2)
  for (let i = 0; i < doomed.length; i += BATCH) {
    await store.removeMany(Array.from(doomed.subarray(i, i + BATCH), entry => store.at(...placeByRun(entry))))
  }
  // Several checkpoints release the space. Stop when the files no longer shrink.
  let size = Number.POSITIVE_INFINITY
  for (let i = 0; i < 20; i++) {
    await store.checkpoint()
    const now = sizeOf(folder)
    if (now >= size && i > 2) break
    size = now
  }
  await store.close()
  return sizeOf(folder)
}

/** The bytes that the files occupy on the disk, without holes. */
function sizeOf(folder) {
  return readdirSync(folder, { recursive: true })
    .map(name => statSync(join(folder, name)))
    .filter(stat => stat.isFile())
    .reduce((sum, stat) => sum + stat.blocks * 512, 0)
}
