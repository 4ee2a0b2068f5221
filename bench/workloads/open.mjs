import { mkdirSync } from 'node:fs'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { placeByRun, placeInOneTree, random, shuffled, value } from '../data.mjs'
import { median } from '../measure.mjs'
import { killed, nextMessage, runJob, startJob, withFolder } from '../processes.mjs'
import { load } from './load.mjs'

const ENTRIES = 1_000_000
const PROCESSES = 5
const LANES = 64
const MODULE = './workloads/open.mjs'

const SHAPES = {
  'a thousand runs': { placeOf: placeByRun },
  'one tree, written in random order': { placeOf: placeInOneTree, shuffle: true },
}
const PEERS = ['annals-port', 'better-sqlite3', 'lmdb']

/**
 * Opens a store of a million entries in a new process and reads one entry: after a close, and after a `kill -9` of a process
 * that was writing. The system's file cache is warm for every contestant.
 */
export async function run() {
  const rows = []
  for (const shape of Object.keys(SHAPES)) {
    const found = new Map()
    for (const peer of PEERS) {
      console.error(`open: ${shape}, ${peer}`)
      found.set(peer, await withFolder(folder => measure({ folder, peer, shape })))
    }
    rows.push(...rowsOf(shape, found))
  }
  return rows
}

async function measure(argument) {
  await runJob(MODULE, 'build', argument)
  const closed = []
  for (let i = 0; i < PROCESSES; i++) closed.push(await runJob(MODULE, 'readOne', argument))
  const crashed = []
  for (let i = 0; i < PROCESSES; i++) {
    const writer = startJob(MODULE, 'writeUntilKilled', argument)
    await nextMessage(writer, 'writing')
    await sleep(300 + i * 100)
    await killed(writer)
    crashed.push(await runJob(MODULE, 'readOne', argument))
  }
  return { closed: medians(closed), crashed: medians(crashed) }
}

function medians(list) {
  return { ms: median(list.map(({ ms }) => ms)), mb: median(list.map(({ mb }) => mb)) }
}

function rowsOf(shape, found) {
  const figures = [
    [`open and read one of 1 M (${shape}), after a close`, 'ms', ({ closed }) => closed.ms, 30, 10],
    [`open and read one of 1 M (${shape}), after a kill`, 'ms', ({ crashed }) => crashed.ms, 120, 40],
    [`resident then (${shape}), after a close`, 'MB', ({ closed }) => closed.mb, 100, 60],
    [`resident then (${shape}), after a kill`, 'MB', ({ crashed }) => crashed.mb, 100, 60],
  ]
  return figures.flatMap(([title, unit, pick, atMost, aim]) =>
    PEERS.slice(1).map((peer, i) => ({
      title,
      unit,
      ours: { name: 'annals', value: pick(found.get('annals-port')) },
      theirs: { name: peer, value: pick(found.get(peer)) },
      // The goal is an absolute figure, so it appears in one row only, not once for each peer.
      ...(i === 0 ? { must: { atMost }, aim } : {}),
    })),
  )
}

async function openPeer(peer, folder) {
  const { openStore } = await import(`../peers/${peer}.mjs`)
  return () => openStore(folder, { durability: 'relaxed', inFlight: LANES })
}

export async function build({ folder, peer, shape }) {
  mkdirSync(folder, { recursive: true })
  const store = await (await openPeer(peer, folder))()
  const { placeOf, shuffle } = SHAPES[shape]
  await load(store, ENTRIES, placeOf, shuffle ? shuffled(ENTRIES, 29) : undefined)
  await store.close()
}

export async function readOne({ folder, peer, shape }) {
  const open = await openPeer(peer, folder)
  const i = Math.floor(Math.random() * ENTRIES)
  const place = SHAPES[shape].placeOf(i)
  const start = performance.now()
  const store = await open()
  const found = await store.get(store.at(...place))
  const ms = performance.now() - start
  const mb = process.memoryUsage().rss / 1e6
  if (found === undefined) throw new Error(`${place} is missing`)
  await store.close()
  return { ms, mb }
}

/** Writes random entries, one a commit with 64 in flight, so that the log to recover is as long as a real writer leaves it. */
export async function writeUntilKilled({ folder, peer, shape }) {
  const store = await (await openPeer(peer, folder))()
  const next = random(process.pid)
  const lane = async () => {
    for (;;) {
      const i = Math.floor(next() * ENTRIES)
      await store.put(store.at(...SHAPES[shape].placeOf(i)), value(i))
      if (i % 64 === 0) await nextTurn()
    }
  }
  setTimeout(() => process.send({ writing: true }), 100)
  return Promise.all(Array.from({ length: LANES }, lane))
}
