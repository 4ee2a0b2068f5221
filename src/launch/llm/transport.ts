import { BYTES_MAX } from '../../core/canonical-json.ts'
import { unlessAborted } from '../time-limit.ts'
import { type Completion, errorIn, readCompletion } from './completion.ts'
import { clip, type Failure, type RawAnswer, statusFailure } from './failure.ts'
import { parseJsonText } from './json.ts'
import type { Redactor } from './redaction.ts'
import type { Tried } from './tries.ts'

/** A function like `globalThis.fetch`. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>

export interface Sending {
  readonly url: string
  readonly headers: readonly (readonly [string, string])[]
  readonly body: string
}

export interface TransportOptions {
  readonly fetch: Fetch
  /** Until the answer is complete, or between two pieces of a stream. */
  readonly timeoutMs: number
  readonly clock: () => number
  readonly redactor: Redactor
  readonly signal: AbortSignal | undefined
}

export type Received =
  | { readonly kind: 'whole'; readonly answer: RawAnswer; readonly completion: Completion }
  | { readonly kind: 'stream'; readonly answer: RawAnswer; readonly stream: IncomingStream }

/** Evidence must fit into canonical JSON, with room for the fields around the answer. */
const ANSWER_BYTES_MAX = BYTES_MAX / 2

/** Sends a request once. Failures of the network are results, not exceptions. */
export async function sendOnce(sending: Sending, options: TransportOptions): Promise<Tried<Received>> {
  const watch = new Watch(options)
  try {
    const init = { method: 'POST', headers: sending.headers.map(pair => [...pair]), body: sending.body }
    const response = await watch.guard(
      options.fetch(sending.url, {
        ...init,
        headers: init.headers as [string, string][],
        signal: watch.signal,
      }),
    )
    const head = { status: response.status, headers: [...response.headers] }
    const isStream = /^text\/event-stream\b/i.test(response.headers.get('content-type') ?? '')
    if (response.ok && isStream && response.body !== null) {
      const stream = new IncomingStream(response.body.getReader(), watch)
      // A stream that breaks before its first piece can be retried.
      await stream.readFirst()
      return { ok: true, value: { kind: 'stream', answer: { ...head, text: '' }, stream } }
    }
    const text = await readAll(response, watch)
    watch.end()
    return judge({ ...head, text }, options)
  } catch (error) {
    watch.end()
    return { ok: false, failure: watch.failureOf(error) }
  }
}

function judge(answer: RawAnswer, { clock, redactor }: TransportOptions): Tried<Received> {
  const value = parseJsonText(answer.text)
  if (answer.status < 200 || answer.status > 299) {
    const said = errorIn(value) ?? (value === undefined && answer.text !== '' ? answer.text : undefined)
    const clean = said === undefined ? undefined : redactor.text(said)
    return { ok: false, failure: statusFailure(answer, clean, clock()) }
  }
  // Redacted before it is shortened, because half a key is not recognized as one.
  const completion =
    value === undefined
      ? `the answer is not JSON: ${clip(redactor.text(answer.text), 80)}`
      : readCompletion(value)
  if (typeof completion !== 'string') return { ok: true, value: { kind: 'whole', answer, completion } }
  const summary = clip(redactor.text(completion))
  return { ok: false, failure: { errorClass: 'MALFORMED_ANSWER', summary, retryable: false, answer } }
}

async function readAll(response: Response, watch: Watch): Promise<string> {
  if (response.body === null) return ''
  const stream = new IncomingStream(response.body.getReader(), watch, false)
  const pieces: Uint8Array[] = []
  for (let piece = await stream.read(); piece !== undefined; piece = await stream.read()) pieces.push(piece)
  return new TextDecoder('utf-8').decode(Buffer.concat(pieces))
}

/** The pieces of a body, with a time limit for each and a size limit for all. */
export class IncomingStream {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>
  readonly #watch: Watch
  readonly #rewinds: boolean
  #first: { piece: Uint8Array | undefined } | undefined
  #bytes = 0

  constructor(reader: ReadableStreamDefaultReader<Uint8Array>, watch: Watch, rewinds = true) {
    this.#reader = reader
    this.#watch = watch
    this.#rewinds = rewinds
  }

  async readFirst(): Promise<void> {
    this.#first = { piece: await this.read() }
  }

  /** The next piece; undefined at the end. */
  async read(): Promise<Uint8Array | undefined> {
    const first = this.#first
    if (first !== undefined) {
      this.#first = undefined
      return first.piece
    }
    if (this.#rewinds) this.#watch.rewind()
    const { done, value } = await this.#watch.guard(this.#reader.read())
    if (done) return undefined
    this.#bytes += value.length
    if (this.#bytes > ANSWER_BYTES_MAX)
      throw new TooLarge(`the answer has more than ${ANSWER_BYTES_MAX} bytes`)
    return value
  }

  failureOf(error: unknown): Failure {
    return this.#watch.failureOf(error)
  }

  /** Closes the connection. */
  close(): void {
    this.#watch.end()
    // The rest is not needed, so it does not matter whether the server notices.
    this.#reader.cancel().catch(() => undefined)
  }
}

class TooLarge extends Error {}

/** Combines a time-out with the caller's signal, and knows afterwards which of them aborted. */
class Watch {
  readonly #controller = new AbortController()
  readonly #options: TransportOptions
  readonly #onAbort = (): void => this.#controller.abort(this.#options.signal?.reason)
  #timer: NodeJS.Timeout | undefined
  #timedOut = false

  constructor(options: TransportOptions) {
    this.#options = options
    if (options.signal?.aborted) this.#onAbort()
    options.signal?.addEventListener('abort', this.#onAbort, { once: true })
    this.rewind()
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  rewind(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.#timedOut = true
      this.#controller.abort(new Error('timed out'))
    }, this.#options.timeoutMs)
  }

  /** Ends with the signal, even if the user's `fetch` ignores it. */
  guard<T>(work: Promise<T>): Promise<T> {
    return unlessAborted(work, this.#controller.signal)
  }

  end(): void {
    clearTimeout(this.#timer)
    this.#options.signal?.removeEventListener('abort', this.#onAbort)
  }

  failureOf(error: unknown): Failure {
    const { signal, timeoutMs, redactor } = this.#options
    if (signal?.aborted) return { errorClass: 'ABORTED', summary: 'the call was cancelled', retryable: false }
    if (this.#timedOut) {
      return { errorClass: 'TIMEOUT', summary: `no answer within ${timeoutMs} ms`, retryable: true }
    }
    const summary = clip(redactor.text(describe(error)))
    if (error instanceof TooLarge) return { errorClass: 'MALFORMED_ANSWER', summary, retryable: false }
    return { errorClass: 'NETWORK', summary, retryable: true }
  }
}

/** The message `fetch failed` says nothing. Its cause does. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { cause } = error
  if (!(cause instanceof Error)) return error.message
  const code = (cause as { code?: unknown }).code
  return `${error.message}: ${typeof code === 'string' ? `${code} ` : ''}${cause.message}`
}
