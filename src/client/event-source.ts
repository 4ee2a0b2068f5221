import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { type SseEvent, SseReader } from '../core/sse.ts'
import type { Ask, Transport } from './transport.ts'
import { isTransient, problemIn, problemOf } from './transport.ts'

const BACKOFF = { firstMs: 100, maxMs: 5_000 }

export interface StreamRequest {
  readonly path: string
  readonly query: Ask['query']
  readonly signal: AbortSignal
}

/**
 * The events of a stream, each once: connecting → reading → (connecting → reading)* → ended by the signal or by an error of the
 * server. A broken or silent connection is opened again after the last event, without a limit. Only the first connection has as
 * many attempts as any other request.
 */
export async function* eventsOf(
  transport: Transport,
  { path, query, signal }: StreamRequest,
): AsyncGenerator<SseEvent, void, void> {
  let lastId = ''
  let failures = 0
  let wasConnected = false
  while (!signal.aborted) {
    const connection = new Connection(signal, transport.idleMs)
    try {
      const headers = { Accept: 'text/event-stream', ...(lastId === '' ? {} : { 'Last-Event-ID': lastId }) }
      const response = await transport.send(path, { headers, query, signal: connection.signal })
      if (!response.ok) throw await problemIn(response)
      wasConnected = true
      for await (const event of connection.events(response)) {
        if (event.event === 'problem') throw problemOf(JSON.parse(event.data))
        yield event
        lastId = event.id
        failures = 0
      }
    } catch (error) {
      if (signal.aborted) return
      if (!(error instanceof AnnalsError) || !isTransient(error)) throw error
      failures++
      if (!wasConnected && failures > (transport.retry.retries ?? 8)) throw error
    } finally {
      connection.end()
    }
    await pause(backoffMs(failures, BACKOFF), { signal })
  }
}

/** One connection. It ends with its reader, or after a time without data. */
class Connection {
  readonly #controller = new AbortController()
  readonly #idleMs: number
  readonly #outer: AbortSignal
  readonly #abort = (): void => this.#controller.abort()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(outer: AbortSignal, idleMs: number) {
    this.#outer = outer
    this.#idleMs = idleMs
    outer.addEventListener('abort', this.#abort)
    this.#heard()
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  async *events(response: Response): AsyncGenerator<SseEvent, void, void> {
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    const parser = new SseReader()
    try {
      for (;;) {
        const { done, value } = await reader.read()
        if (done) return
        this.#heard()
        yield* parser.push(value)
        this.#heard()
      }
    } catch (error) {
      // Catches only errors of the connection: an error of the consumer is not thrown inside this generator.
      throw new AnnalsError('UNAVAILABLE', 'the event stream was interrupted', {}, error)
    }
  }

  end(): void {
    clearTimeout(this.#timer)
    this.#outer.removeEventListener('abort', this.#abort)
    this.#controller.abort()
  }

  #heard(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(this.#abort, this.#idleMs)
  }
}
