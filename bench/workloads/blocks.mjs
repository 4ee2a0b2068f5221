import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { keyName, ownValue, runName, stepKey } from '../data.mjs'
import { nextMessage, runJob, startJob, withFolder } from '../processes.mjs'
import { runEvent } from '../run-event.mjs'

const MODULE = './workloads/blocks.mjs'
const SIZES = [10_000, 100_000, 1_000_000]
const TRIES = 3
const MOST_MS = 20
const AIM_MS = 5
/** The limit for calls that return a list of a million entries, which V8 moves in one step. */
const WHOLE_LIST_MS = 80
const MIB = 1024 * 1024
const BATCH = 1_000
const RUN = 'run'
const RECORDED = 'recorded'
const LARGE = '4 KiB'
/** These flags disable the collector's parallel threads: they wait for a core too, and that time can't be measured. */
const FLAGS = ['scavenge', 'compaction', 'pointer-update'].map(part => `--no-parallel-${part}`)

/**
 * Measures the longest block of the event loop during each call: best of three, without the time in which the process waited
 * for a core. A store of N entries has N keys and N events of 400 bytes in one run, N / 20 events of 4 KiB, N / 10 each of
 * records, traces and cells, and N / 100 runs.
 */
export async function run({ sizes = SIZES, only }) {
  const rows = []
  for (const size of sizes) {
    console.error(`blocks: ${size} entries`)
    const found = await withFolder(folder =>
      runJob(
        MODULE,
        'measure',
        { folder, size, only },
        { execArgv: [...FLAGS, '--max-old-space-size=8192'] },
      ),
    )
    for (const { call, ms, isList } of found) {
      rows.push({
        title: `longest block at ${size.toLocaleString('en')} entries: ${call}`,
        unit: 'ms',
        ours: { name: 'annals', value: ms },
        must: { atMost: isList && size >= 1_000_000 ? WHOLE_LIST_MS : MOST_MS },
        aim: AIM_MS,
      })
    }
  }
  return rows
}

export async function measure({ folder, size, only }) {
  const { longestBlock } = await import('../../temp/programs/test/longest-block.js')
  const store = new MeasuredStore(folder, size)
  await store.build()
  const chosen = new RegExp(only ?? '')
  const found = []
  const note = (call, ms, isList = false) => {
    console.error(`blocks: ${size} entries, ${call}: ${ms.toFixed(1)} ms`)
    found.push({ call, ms, isList })
  }
  for (const [call, work, isList] of store.calls()) {
    if (chosen.test(call))
      note(call, await longestBlock(work, TRIES, size >= 1_000_000 ? MOST_MS : 0), isList)
  }
  for (const [call, prepare, work] of store.preparedCalls()) {
    if (!chosen.test(call)) continue
    let best = Number.POSITIVE_INFINITY
    for (let i = 0; i < TRIES; i++) {
      await prepare(i)
      best = Math.min(best, await longestBlock(() => work(i), 1))
    }
    note(call, best)
  }
  await store.overHttp(async (call, work) => {
    if (chosen.test(call)) note(call, await longestBlock(work, TRIES))
  })
  await store.close()
  return found
}

async function count(items) {
  let seen = 0
  for await (const _ of items) seen++
  return seen
}

class MeasuredStore {
  constructor(folder, size) {
    this.folder = folder
    this.size = size
    this.path = join(folder, 'store')
  }

  async open(options) {
    const { open } = await import('../../dist/index.js')
    return open({ durability: 'relaxed', ...options })
  }

  async build() {
    this.db = await this.open({ path: this.path })
    const { db, size } = this
    await inBatches(size, async numbers => {
      await db.events.appendBatch(
        RUN,
        numbers.map(i => ({ type: i % 100 === 0 ? 'rare' : 'note', payload: ownValue(i) })),
      )
      await db.transaction(RUN, async tx => {
        for (const i of numbers) await tx.kv.put(keyName(i), ownValue(i))
      })
    })
    await inBatches(size / 20, numbers =>
      db.events.appendBatch(
        LARGE,
        numbers.map(i => ({ type: 'note', payload: `${i}`.padEnd(4096, 'x') })),
      ),
    )
    const { deriveIdempotencyKey } = await import('../../dist/index.js')
    await db.ledger.appendEvent(startOf(RECORDED, deriveIdempotencyKey))
    await db.traces.record(RUN, { type: 'Thought', content: 'root' }, { id: 'root' })
    await inBatches(size / 10, async numbers => {
      await db.ledger.appendEvents(numbers.map(i => runEvent(RECORDED, stepKey(i), ownValue(i))))
      await db.transaction(RUN, async tx => {
        for (const i of numbers) {
          await tx.traces.recordChild('root', { type: 'Thought', content: `${i}` }, { tags: ['a'] })
          await tx.cells.init(`cell-${i}`, i)
        }
      })
    })
    for (let i = 0; i < size / 100; i++) await db.runs.create({ runId: runName(i), tags: ['x'] })
    await db.ledger.settle()
  }

  /** The name, the call, and whether it returns a list of everything. */
  calls() {
    const { db } = this
    const all = Number.POSITIVE_INFINITY
    const large = Array.from({ length: 300_000 }, (_, i) => ({ id: i, name: `name ${i}`, tags: ['a', 'b'] }))
    const keyed = Object.fromEntries(Array.from({ length: 600_000 }, (_, i) => [`key-${i}`, i]))
    return [
      ['kv.list', () => db.kv.list(RUN), true],
      ['kv.entries', () => db.kv.entries(RUN), true],
      ['events.readRange', () => db.events.readRange(RUN, 0, all), true],
      ['events.readRange, 4 KiB', () => db.events.readRange(LARGE, 0, all), true],
      ['events.iterate', () => count(db.events.iterate(RUN))],
      ['events.readByType', () => db.events.readByType(RUN, 'rare')],
      ['events.verifyChain', () => db.events.verifyChain(RUN)],
      ['events.verifyChain, 4 KiB', () => db.events.verifyChain(LARGE)],
      ['cells.list', () => db.cells.list(RUN), true],
      ['traces.list', () => db.traces.list(RUN), true],
      ['traces.tree', () => db.traces.tree(RUN, 'root'), true],
      ['traces.iterate', () => count(db.traces.iterate(RUN, { tag: 'a' }))],
      ['runs.list', () => db.runs.list(), true],
      ['runs.stats', () => db.runs.stats()],
      ['ledger.fetchEvents', () => db.ledger.fetchEvents(RECORDED), true],
      ['ledger.iterateEvents', () => count(db.ledger.iterateEvents(RECORDED))],
      ['ledger.replaySnapshot', () => db.ledger.replaySnapshot(RECORDED)],
      ['ledger.verifyRun', () => db.ledger.verifyRun(RECORDED)],
      ['ledger.audit with a filter', () => count(db.ledger.audit({ from: 0, to: all, eventType: 'none' }))],
      ['a transaction over kv.list', () => db.transaction(RUN, tx => tx.kv.list()), true],
      ['verifyIndices', () => db.verifyIndices()],
      ['rebuildIndices', () => db.rebuildIndices()],
      ['tenants', () => db.tenants()],
      ['exportRun', () => count(db.exportRun(RECORDED))],
      ['exportRun of the events', () => count(db.exportRun(RUN))],
      ['kv.put of 16 MiB', () => db.kv.put('large', 'value', large)],
      ['kv.get of 16 MiB', () => db.kv.get('large', 'value')],
      ['kv.put of 600,000 keys in an object', () => db.kv.put('large', 'keyed', keyed)],
      ['kv.get of 600,000 keys in an object', () => db.kv.get('large', 'keyed')],
    ]
  }

  /** The name, the call, and the preparation before each measurement. */
  preparedCalls() {
    const { db, folder, size } = this
    const copy = join(folder, 'copy')
    const other = join(folder, 'other')
    let target
    const anew = async () => {
      await target?.close()
      rmSync(other, { recursive: true, force: true })
      target = await this.open({ path: other })
    }
    const copied = async () => {
      rmSync(copy, { recursive: true, force: true })
      cpSync(this.path, copy, { recursive: true })
    }
    const opened = options => async () => (await this.open({ path: copy, ...options })).close()
    const events = i => Array.from({ length: 10_000 }, (_, j) => runEvent(`batch-${i}`, stepKey(j), { j }))
    let batch
    return [
      ['importRun', anew, () => target.importRun(() => db.exportRun(RECORDED))],
      ['copyTo', anew, () => db.copyTo(target)],
      ['backup', () => rmSync(copy, { recursive: true, force: true }), () => db.backup(copy)],
      [
        'ledger.appendEvents of 10,000',
        i => {
          batch = events(i)
        },
        () => db.ledger.appendEvents(batch),
      ],
      [
        'checkpoint of many dirty trees',
        async i => {
          for (let j = 0; j < Math.min(size / 10, 20_000); j++) await db.kv.put(`dirty-${j}`, 'key', i)
        },
        () => db.checkpoint(),
      ],
      [
        'expiry',
        async () => {
          await inBatches(size / 10, numbers =>
            db.transaction('expiring', async tx => {
              for (const i of numbers) await tx.kv.put(keyName(i), i, { ttlMs: 1 })
            }),
          )
        },
        () => db.checkpoint(),
      ],
      [
        'runs.delete',
        async () => {
          await db.runs.create({ runId: 'doomed' })
          await inBatches(size / 10, numbers =>
            db.events.appendBatch(
              'doomed',
              numbers.map(i => ({ type: 'note', payload: i })),
            ),
          )
        },
        () => db.runs.delete('doomed'),
      ],
      ['open after a crash', copied, opened({})],
      ['open with verifyOnOpen', copied, opened({ verifyOnOpen: true, readOnly: true })],
    ]
  }

  /** Requests come from another process, so that only the server's work is measured. */
  async overHttp(measured) {
    const { createServer } = await import('../../dist/server.js')
    const server = createServer(this.db, { port: 0 })
    const { port } = await server.listen()
    // Started before the measurement, because starting a process takes longer than most requests.
    const client = startJob(MODULE, 'client', { port })
    await nextMessage(client, 'ready')
    const asked = request => async () => {
      client.child.send({ request })
      await nextMessage(client, 'bytes')
    }
    await measured('GET verification', asked({ path: `/v1/runs/${RECORDED}/verification` }))
    await measured('GET bundle', asked({ path: `/v1/runs/${RECORDED}/bundle` }))
    await measured(
      'GET audit with a filter',
      asked({ path: '/v1/audit?from=2000-01-01T00:00:00.000Z&to=2100-01-01T00:00:00.000Z&eventType=none' }),
    )
    await measured(
      'PUT of 16 MiB',
      asked({ path: `/v1/runs/${RUN}/kv/large`, method: 'PUT', bodyBytes: 15 * MIB }),
    )
    client.child.send({ end: true })
    await client.done
    await server.close()
  }

  async close() {
    await this.db.close()
  }
}

/** The requesting process: it sends the requests that its parent names, until the parent ends it. */
export function client({ port }) {
  return new Promise((resolve, reject) => {
    process.on('message', ({ request, end }) => {
      if (end) resolve()
      else ask({ port, ...request }).then(bytes => process.send({ bytes }), reject)
    })
    process.send({ ready: true })
  })
}

/** Sends one request and reads the whole response. */
async function ask({ port, path, method = 'GET', bodyBytes }) {
  let body
  if (bodyBytes !== undefined) {
    const items = []
    for (let bytes = 0; bytes < bodyBytes; bytes += 41) items.push('{"id":100000,"name":"name","tags":["a"]}')
    body = `{"value":[${items.join(',')}]}`
  }
  const headers = body === undefined ? {} : { 'content-type': 'application/json' }
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers, body })
  let bytes = 0
  for await (const chunk of answer.body ?? []) bytes += chunk.length
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`)
  return bytes
}

/** The first event of a run. Without it, each step event would raise an alert. */
function startOf(runId, deriveIdempotencyKey) {
  const { stepId, idempotencyKey, ...event } = runEvent(runId, stepKey(0), {})
  const started = { ...event, eventType: 'RunStarted' }
  return { ...started, idempotencyKey: deriveIdempotencyKey(started) }
}

async function inBatches(total, work) {
  for (let start = 0; start < total; start += BATCH) {
    await work(Array.from({ length: Math.min(BATCH, total - start) }, (_, i) => start + i))
  }
}
