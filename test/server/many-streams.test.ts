import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { type AnnalsClient, createClient } from '../../src/client.ts'
import type { RunEventWrite } from '../../src/index.ts'
import { newEvent } from '../../src/testing/ledger-suite/events.ts'
import { ServerProcess } from './server-process.ts'

const STREAMS = 1_000
const APPENDS = 100
const CPU = 'process_cpu_seconds_total'
const GROWTH_BYTES_MAX = 200 * 1024 * 1024

const server = new ServerProcess()
const sockets: Socket[] = []
afterEach(async () => {
  for (const socket of sockets) socket.destroy()
  await server.remove()
})

function noteOf(runId: string, logicalAttemptId: number): RunEventWrite {
  return newEvent({ eventType: 'Noted', runId, logicalAttemptId, payload: { text: 'x'.repeat(400) } })
}

const MARK = '\ndata: '

/** A reader that only counts events. It must be cheap, because a thousand of them share this process. */
class CountingReader {
  readonly socket: Socket
  #events = 0
  #tail = ''
  #wanted = 0
  #wake: () => void = () => {}

  constructor(port: number, path: string) {
    this.socket = connect(port, '127.0.0.1', () => {
      this.socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
    })
    this.socket.setEncoding('latin1')
    this.socket.on('data', data => {
      const text = this.#tail + String(data)
      this.#events += text.split(MARK).length - 1
      // A chunk may end in the middle of the mark.
      this.#tail = text.slice(1 - MARK.length)
      if (this.#events >= this.#wanted) this.#wake()
    })
    sockets.push(this.socket)
  }

  reached(count: number): Promise<void> {
    if (this.#events >= count) return Promise.resolve()
    this.#wanted = count
    return new Promise(resolve => {
      this.#wake = resolve
    })
  }

  get events(): number {
    return this.#events
  }
}

async function metric(url: string, name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics/prometheus`)).text()
  return Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)?.[1])
}

/**
 * The server's processor time per append in milliseconds. The elapsed time would mostly measure the disk and other
 * programs.
 */
async function costOf(url: string, client: AnnalsClient, runId: string, from: number): Promise<number> {
  const before = await metric(url, CPU)
  for (let i = from; i < from + APPENDS; i++) await client.ledger.appendEvent(noteOf(runId, i))
  return (((await metric(url, CPU)) - before) * 1_000) / APPENDS
}

test(`${STREAMS} open streams and one stalled client: appends stay fast, memory is bounded, each stream gets every event`, async () => {
  await server.start()
  const { url } = server
  const port = Number(new URL(url).port)
  const client = createClient({ url })
  await costOf(url, client, 'warm-up', 1)
  const alone = await costOf(url, client, 'quiet', 1)
  const memoryBefore = await metric(url, 'process_resident_memory_bytes')

  const readers = Array.from(
    { length: STREAMS },
    (_, i) =>
      new CountingReader(port, i % 2 === 0 ? '/v1/runs/watched/stream' : `/v1/runs/other-${i}/stream`),
  )
  const watching = readers.filter((_, i) => i % 2 === 0)
  const stalled = connect(port, '127.0.0.1')
  sockets.push(stalled)
  await once(stalled, 'connect')
  stalled.pause()
  stalled.write('GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n')
  while ((await metric(url, 'annals_http_open_streams')) < STREAMS + 1) {
    // The server does not announce when it serves a connection, so its metric is polled.
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  // Only the stalled stream includes this run.
  const beside = await costOf(url, client, 'quiet', 1 + APPENDS)
  // Each of these events goes to five hundred readers.
  const watched = await costOf(url, client, 'watched', 1)
  await Promise.all(watching.map(reader => reader.reached(APPENDS)))
  // Far more than the buffers of the stalled stream can hold.
  await Promise.all(
    Array.from({ length: 2_000 }, (_, i) => client.ledger.appendEvent(noteOf('flood', i + 1))),
  )
  const growth = (await metric(url, 'process_resident_memory_bytes')) - memoryBefore

  console.log(
    `processor time of an append: ${alone.toFixed(2)} ms alone, ${beside.toFixed(2)} ms beside ${STREAMS} streams, ` +
      `${watched.toFixed(2)} ms into ${watching.length} streams; memory +${(growth / 1e6).toFixed(0)} MB`,
  )
  expect(watching.every(({ events }) => events === APPENDS)).toBe(true)
  expect(readers.reduce((sum, { events }) => sum + events, 0)).toBe(APPENDS * watching.length)
  // If every stream were notified, an append would cost ten times as much.
  expect(beside).toBeLessThan(4 * alone)
  expect(growth).toBeLessThan(GROWTH_BYTES_MAX)
}, 120_000)
