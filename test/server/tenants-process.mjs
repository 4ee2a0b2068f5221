import { randomUUID } from 'node:crypto'
import { closeSync, openSync, readSync } from 'node:fs'
import { deriveIdempotencyKey, open } from '../../dist/index.js'
import { createServer } from '../../dist/server.js'

/**
 * A server with two tenants in a separate process: `node tenants-process.mjs <events>`. The run `long` of the tenant
 * `acme` has this many events. It sends its URL and tokens over IPC. Between `watch` and `report` it measures the
 * longest block of its event loop and its memory.
 */
const EVENTS_A_BATCH = 5_000
const events = Number(process.argv[2])

const db = await open({ memory: true })
const server = createServer(db, { port: 0, auth: 'required', heavyWaitMs: 3_000 })
await fill()
const tokens = {}
for (const tenant of ['acme', 'other']) {
  for (const role of ['reader', 'writer']) {
    tokens[`${tenant}-${role}`] = (await server.tokens.create({ name: role, tenant, role })).token
  }
}
const { url } = await server.listen()

async function fill() {
  const { ledger } = db.forTenant('acme')
  for (let next = 0; next < events; ) {
    const batch = []
    while (batch.length < EVENTS_A_BATCH && next < events) batch.push(eventOf(next++))
    await ledger.appendEvents(batch)
  }
  const other = db.forTenant('other').ledger
  await other.appendEvents(Array.from({ length: Math.min(events, 2_000) }, (_, i) => eventOf(i, 'other')))
}

function eventOf(i, tenantId = 'acme') {
  const event = {
    ...{ runId: 'long', eventType: 'Noted', planId: 'plan', planVersion: '1', tenantId },
    ...{ logicalAttemptId: i + 1, engineAttemptId: 1, projectId: 'shop', environmentId: 'test' },
    ...{ emittedAt: '2026-01-01T00:00:00.000Z', eventId: randomUUID(), payload: { i } },
  }
  return { ...event, idempotencyKey: deriveIdempotencyKey(event) }
}

/**
 * Measures the event loop. A block is the time on a core between two turns, which excludes other processes and the
 * garbage collector's helper threads. The store is in memory, so a turn never waits for a disk.
 */
class Watch {
  #file = openSync('/proc/thread-self/schedstat', 'r')
  #text = Buffer.alloc(128)
  #last = this.#onCoreMs()
  #isOver = false
  longestMs = 0
  rssMax = 0

  constructor() {
    this.#turn()
  }

  #onCoreMs() {
    const length = readSync(this.#file, this.#text, 0, this.#text.length, 0)
    return Number(this.#text.latin1Slice(0, length).split(' ')[0]) / 1e6
  }

  #turn() {
    const now = this.#onCoreMs()
    this.longestMs = Math.max(this.longestMs, now - this.#last)
    this.#last = now
    this.rssMax = Math.max(this.rssMax, process.memoryUsage.rss())
    if (this.#isOver) closeSync(this.#file)
    else setTimeout(() => this.#turn(), 1)
  }

  end() {
    this.#isOver = true
    const { longestMs, rssMax } = this
    return { longestMs, rssMax }
  }
}

let watch
process.on('message', message => {
  if (message === 'watch') watch = new Watch()
  else process.send(watch.end())
})
process.on('disconnect', () => process.exit(0))
process.send({ url, tokens })
