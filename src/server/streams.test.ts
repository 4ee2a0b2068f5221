import { connect, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Annals, open } from '../annals.ts'
import { type SseEvent, SseReader } from '../core/sse.ts'
import { newEvent } from '../testing/ledger-suite/events.ts'
import type { ServerOptions } from './options.ts'
import { createServer, type Server } from './server.ts'

let db: Annals
let server: Server
let now = 0
const options: ServerOptions = { port: 0, clock: () => now }

beforeEach(async () => {
  now = 1_000
  db = await open({ memory: true })
  server = createServer(db, options)
})
afterEach(async () => {
  await server.close()
  await db.close()
})

const append = (runId: string, attempt: number, payload?: object) =>
  db.ledger.appendEvent(
    newEvent({ eventType: 'Noted', runId, logicalAttemptId: attempt, payload: { ...payload } }),
  )

/** Reads a stream event by event. */
class Reader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>
  readonly #parser = new SseReader()
  readonly #ready: SseEvent[] = []

  constructor(answer: Response) {
    expect(answer.status).toBe(200)
    this.#reader = (answer.body as ReadableStream<Uint8Array>).getReader()
  }

  /** The next event; undefined at the end. */
  async next(): Promise<SseEvent | undefined> {
    while (this.#ready.length === 0) {
      const { done, value } = await this.#reader.read()
      if (done) return undefined
      this.#ready.push(...this.#parser.push(value))
    }
    return this.#ready.shift()
  }

  async take(count: number): Promise<readonly SseEvent[]> {
    const events: SseEvent[] = []
    while (events.length < count) events.push((await this.next()) as SseEvent)
    return events
  }

  cancel(): Promise<void> {
    return this.#reader.cancel()
  }
}

async function follow(path: string, headers: Record<string, string> = {}): Promise<Reader> {
  return new Reader(await server.fetch(new Request(`http://localhost${path}`, { headers })))
}

const seqOf = ({ data }: SseEvent): number => JSON.parse(data).runSeq

describe('event streams', () => {
  test('deliver stored events, then new ones, and continue after Last-Event-ID', async () => {
    for (let i = 1; i <= 3; i++) await append('run', i)
    const first = await follow('/v1/runs/run/stream')
    const events = await first.take(3)
    expect(events.map(seqOf)).toEqual([1, 2, 3])
    await append('run', 4)
    expect(seqOf((await first.next()) as SseEvent)).toBe(4)
    await first.cancel()
    const again = await follow('/v1/runs/run/stream', { 'Last-Event-ID': events[1].id })
    expect((await again.take(2)).map(seqOf)).toEqual([3, 4])
    await again.cancel()

    const all = await follow('/v1/stream')
    const [one] = await all.take(1)
    await all.cancel()
    const rest = await follow('/v1/stream', { 'Last-Event-ID': one.id })
    expect((await rest.take(3)).map(seqOf)).toEqual([2, 3, 4])
    await rest.cancel()
  })

  test('of alerts deliver stored alerts, then new ones, and continue after Last-Event-ID', async () => {
    const appendInvalid = (eventType: string, runId = 'run') =>
      db.ledger.appendEvent(newEvent({ eventType, runId }))
    const typesOf = (events: readonly SseEvent[]): string[] =>
      events.map(({ data }) => JSON.parse(data).eventType)
    await appendInvalid('RunPaused')
    await appendInvalid('RunResumed')
    await db.ledger.projectSnapshot('run')
    const first = await follow('/v1/alerts/stream')
    const events = await first.take(2)
    expect(typesOf(events)).toEqual(['RunPaused', 'RunResumed'])
    expect(JSON.parse(events[0].data)).toEqual((await db.ledger.alerts())[0])
    const tail = await follow('/v1/alerts/stream?tail=true')
    await appendInvalid('RunCompleted')
    expect(typesOf([(await first.next()) as SseEvent])).toEqual(['RunCompleted'])
    expect(typesOf(await tail.take(1))).toEqual(['RunCompleted'])
    const again = await follow('/v1/alerts/stream', { 'Last-Event-ID': events[0].id })
    expect(typesOf(await again.take(2))).toEqual(['RunResumed', 'RunCompleted'])
    for (const reader of [first, tail, again]) await reader.cancel()
    for (const id of ['4', 'x', '-1', '1:1', '0000000000000001']) {
      const request = new Request('http://localhost/v1/alerts/stream', { headers: { 'Last-Event-ID': id } })
      expect((await server.fetch(request)).status, id).toBe(400)
    }
  })

  test('an invalid position is refused, not treated as the start', async () => {
    for (const id of ['x', '-1', '1.5', '1:x', '99999999999999999']) {
      const request = new Request('http://localhost/v1/runs/run/stream', { headers: { 'Last-Event-ID': id } })
      expect((await server.fetch(request)).status, id).toBe(400)
    }
    const request = new Request('http://localhost/v1/stream', { headers: { 'Last-Event-ID': 'zz' } })
    expect((await server.fetch(request)).status).toBe(400)
  })

  test('a run that was deleted and created again with its id is recognized as another run', async () => {
    await append('run', 1)
    await append('run', 2)
    const reader = await follow('/v1/runs/run/stream')
    const [, second] = await reader.take(2)
    await db.runs.delete('run', { purgeLedger: true, reason: 'asked to forget' })
    for (let i = 11; i <= 14; i++) await append('run', i)
    const end = (await reader.next()) as SseEvent
    expect(end.event).toBe('problem')
    expect(JSON.parse(end.data)).toMatchObject({ code: 'EVENT_CHAIN_BROKEN' })
    expect(await reader.next()).toBeUndefined()
    const request = new Request('http://localhost/v1/runs/run/stream', {
      headers: { 'Last-Event-ID': second.id },
    })
    expect((await server.fetch(request)).status).toBe(409)
  })

  test('many clients at many positions get all events once and in order during writes', async () => {
    const COUNT = 300
    const readers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => follow(i % 2 === 0 ? '/v1/runs/run/stream' : '/v1/stream')),
    )
    const reading = readers.map(reader => reader.take(COUNT))
    const writing = Array.from({ length: COUNT }, (_, i) =>
      append('run', i + 1, { text: 'x'.repeat(i * 10) }),
    )
    const late = follow('/v1/runs/run/stream').then(async reader => {
      const events = await reader.take(COUNT)
      await reader.cancel()
      return events
    })
    await Promise.all(writing)
    for (const events of await Promise.all([...reading, late])) {
      expect(events.map(seqOf)).toEqual(Array.from({ length: COUNT }, (_, i) => i + 1))
    }
    for (const reader of readers) await reader.cancel()
  })

  test('revoking a token ends its open streams at once, and no others', async () => {
    const { tokens } = server
    const [mine, other] = [await tokens.create({ role: 'reader' }), await tokens.create({ role: 'reader' })]
    await append('run', 1)
    const streams = await Promise.all(
      [mine, mine, other].map(async ({ token }, i) => {
        const path = i === 1 ? '/v1/stream' : '/v1/runs/run/stream'
        const reader = await follow(path, { Authorization: `Bearer ${token}` })
        await reader.take(1)
        return reader
      }),
    )
    await tokens.revoke(mine.id)
    for (const reader of streams.slice(0, 2)) {
      const end = (await reader.next()) as SseEvent
      expect([end.event, JSON.parse(end.data).code]).toEqual(['problem', 'UNAUTHENTICATED'])
      expect(await reader.next()).toBeUndefined()
    }
    await append('run', 2)
    expect(seqOf((await streams[2].next()) as SseEvent)).toBe(2)
    await streams[2].cancel()
  })

  test('a stream ends when its token expires', async () => {
    const { token } = await server.tokens.create({ role: 'reader', ttlMs: 10 })
    const reader = await follow('/v1/stream', { Authorization: `Bearer ${token}` })
    now += 10
    expect((await reader.next())?.event).toBe('problem')
  })

  test('the number of streams is limited, and one that ends makes room', async () => {
    await server.close()
    server = createServer(db, { ...options, streamsMax: 2 })
    const [a, b] = [await follow('/v1/stream'), await follow('/v1/stream')]
    const request = (): Request => new Request('http://localhost/v1/stream')
    expect((await server.fetch(request())).status).toBe(429)
    await a.cancel()
    await (await follow('/v1/stream')).cancel()
    await b.cancel()
  })

  test('the number of streams per token is limited, without effect on other tokens', async () => {
    await server.close()
    server = createServer(db, { ...options, streamsPerToken: 2 })
    const bearer = async (): Promise<Record<string, string>> => ({
      Authorization: `Bearer ${(await server.tokens.create({ role: 'reader' })).token}`,
    })
    const [one, another] = [await bearer(), await bearer()]
    const [a, b] = [await follow('/v1/stream', one), await follow('/v1/runs/run/stream', one)]
    const refused = await server.fetch(new Request('http://localhost/v1/stream', { headers: one }))
    expect(refused.status).toBe(429)
    expect(refused.headers.get('Retry-After')).toBe('1')
    expect(await refused.json()).toMatchObject({
      code: 'RATE_LIMITED',
      detail: 'this token already has 2 event streams; close one first',
      details: { streamsPerToken: 2 },
    })
    await (await follow('/v1/stream', another)).cancel()
    await a.cancel()
    await (await follow('/v1/stream', one)).cancel()
    await b.cancel()
  })

  test('opening a stream looks up only its own token', async () => {
    const { token } = await server.tokens.create({ role: 'reader' })
    const list = vi.spyOn(server.tokens, 'list')
    const get = vi.spyOn(server.tokens, 'get')
    await (await follow('/v1/stream', { Authorization: `Bearer ${token}` })).cancel()
    expect(get).toHaveBeenCalledTimes(1)
    expect(list).not.toHaveBeenCalled()
  })

  test('closing the server ends streams and refuses new ones', async () => {
    const { url } = await server.listen()
    const reader = new Reader(await fetch(`${url}/v1/stream`))
    const end = reader.next()
    await server.close()
    expect(await end).toBeUndefined()
    expect((await server.fetch(new Request('http://localhost/v1/stream'))).status).toBe(503)
    expect((await server.fetch(new Request('http://localhost/ready'))).status).toBe(503)
  })

  test('a client that reads nothing delays no other and is disconnected', async () => {
    await server.close()
    server = createServer(db, { ...options, streamStallMs: 200 })
    const { port } = await server.listen()
    const stalled = await stalledReader(port)
    const cut = new Promise<void>(resolve => stalled.once('close', () => resolve()))
    const heard = await follow('/v1/runs/run/stream')
    const COUNT = 60
    const events = heard.take(COUNT)
    // Far more than the buffers of the sockets can hold.
    for (let i = 1; i <= COUNT; i++) await append('run', i, { text: 'x'.repeat(500_000) })
    expect((await events).map(seqOf)).toHaveLength(COUNT)
    await heard.cancel()
    // A socket notices that the other side has closed only when it is read.
    setTimeout(() => stalled.resume(), 1_500)
    await cut
    expect(await metric('annals_http_streams_stalled_total')).toBe(1)
    expect(await metric('annals_http_open_streams')).toBe(0)
  })
})

async function metric(name: string): Promise<number> {
  const answer = await server.fetch(new Request('http://localhost/metrics/prometheus'))
  return Number(new RegExp(`^${name} (.*)$`, 'm').exec(await answer.text())?.[1])
}

/** Requests a stream and never reads it. */
function stalledReader(port: number): Promise<Socket> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.pause()
      socket.on('error', () => {})
      socket.write('GET /v1/runs/run/stream HTTP/1.1\r\nHost: localhost\r\n\r\n', () => resolve(socket))
    })
  })
}
