import { pause } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { formatRfc3339 } from '../core/time.ts'
import type { Disk } from '../disk/disk.ts'
import { postRun, readRecord, type TelemetryRecord, truncationRun } from './model.ts'
import { type Death, Outbox, type TelemetryLog } from './outbox.ts'
import { retryAfterMs } from './retry-after.ts'

/** Options of a telemetry client. */
export interface TelemetryClientOptions {
  /** The address of the service. */
  readonly baseUrl: string
  readonly token?: string
  /** The run's folder. It holds the outbox. */
  readonly disk: Disk
  /** The run that the record about a full outbox names. */
  readonly runId?: string
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>
  readonly clock?: () => number
  readonly sleep?: (ms: number) => Promise<void>
  readonly log: TelemetryLog
  /** How long one try may take; 10,000 by default. */
  readonly timeoutMs?: number
  readonly bytesMax?: number
  /** Once it aborts, no more requests are sent. Records go to the outbox. */
  readonly signal?: AbortSignal
}

/** What happened to a record. `unwritten`: neither the service nor the outbox has it. */
export type Delivery = 'accepted' | 'waiting' | 'dead' | 'unwritten'

/** What happened to telemetry records. */
export interface FlushReport {
  /** How many the service accepted. */
  readonly accepted: number
  /** How many the service refused for good. They are in `telemetry_dead.jsonl`. */
  readonly dead: number
  /** How many are still in the outbox. */
  readonly waiting: number
}

type Answer =
  | { readonly kind: 'accepted' }
  | { readonly kind: 'later'; readonly why: string; readonly retryAfterMs?: number }
  | { readonly kind: 'forbidden'; readonly why: string }
  | { readonly kind: 'never'; readonly death: Death }

const TRIES_MAX = 3
const BACKOFF = { firstMs: 1_000, maxMs: 2_000 }
const RETRY_AFTER_MAX_MS = 10_000
/** The statuses, besides 5xx, after which a retry may succeed. */
const LATER: readonly number[] = [408, 425, 429]
const FORBIDDEN: readonly number[] = [401, 403]
const ANSWER_CHARS_MAX = 4_096

/**
 * Sends telemetry records in order. It never fails: a record that can't be
 * delivered goes to the outbox. While the outbox is not empty, later records
 * join it without a request. A flush sends the records of the outbox, up to
 * the first one that can't be delivered.
 */
export class TelemetryClient {
  readonly #options: TelemetryClientOptions
  readonly #outbox: Outbox
  /** Undefined for an invalid URL. All records then go to the outbox, as if the service were down. */
  readonly #url: string | undefined
  readonly #clock: () => number
  readonly #log: TelemetryLog
  #warnedOfAuth = false
  #last: Promise<unknown> = Promise.resolve()
  #flush: Promise<FlushReport> | undefined

  private constructor(options: TelemetryClientOptions, outbox: Outbox) {
    this.#options = options
    this.#outbox = outbox
    this.#url = baseUrlOf(options.baseUrl)
    this.#log = options.log
    this.#clock = options.clock ?? Date.now
  }

  static async open(options: TelemetryClientOptions): Promise<TelemetryClient> {
    const { disk, bytesMax, clock = Date.now, log } = options
    const truncated = (dropped: number): TelemetryRecord =>
      postRun(truncationRun(dropped, options.runId, clock()), clock())
    const limits = bytesMax === undefined ? {} : { bytesMax }
    const outbox = await Outbox.open({ disk, log, truncated, ...limits })
    return new TelemetryClient(options, outbox)
  }

  get waiting(): number {
    return this.#outbox.length
  }

  /** Sends a record, in the order of the calls. If it can't be delivered now, `ifWaiting` goes to the outbox in its place. */
  send(record: TelemetryRecord, ifWaiting: TelemetryRecord = record): Promise<Delivery> {
    const turn = this.#last
      .then(() => this.#deliver(record, ifWaiting))
      .catch(error => this.#unwritten(error))
    this.#last = turn
    return turn
  }

  /** Sends the records of the outbox, the oldest first, up to the first one that can't be delivered. */
  async flush(): Promise<FlushReport> {
    await this.#last
    // A flush in progress may be about to give up, so this call starts another one.
    await this.#flush
    this.#flush ??= this.#flushOnce().finally(() => {
      this.#flush = undefined
    })
    return this.#flush
  }

  /** Waits for requests in progress, and closes the outbox. */
  async close(): Promise<void> {
    await this.#last
    await this.#flush
    await this.#outbox.close()
  }

  async #deliver(record: TelemetryRecord, ifWaiting: TelemetryRecord): Promise<Delivery> {
    if (!this.#outbox.isEmpty) {
      await this.#outbox.append(ifWaiting)
      return 'waiting'
    }
    const answer = await this.#ask(record)
    switch (answer.kind) {
      case 'accepted':
        return 'accepted'
      case 'never':
        this.#log.warn(`telemetry refused: ${answer.death.reason}`)
        await this.#outbox.buryRecord(record, answer.death)
        return 'dead'
      default:
        this.#warn(answer)
        await this.#outbox.append(ifWaiting)
        return 'waiting'
    }
  }

  async #flushOnce(): Promise<FlushReport> {
    let [accepted, dead] = [0, 0]
    try {
      for (let line = this.#outbox.peek(); line !== undefined; line = this.#outbox.peek()) {
        const record = readRecord(line.text)
        const answer = typeof record === 'string' ? this.#unreadable(record) : await this.#askAgain(record)
        if (answer.kind === 'accepted') {
          await this.#outbox.accept(line.sequence)
          accepted++
        } else if (answer.kind === 'never') {
          this.#log.warn(`telemetry refused: ${answer.death.reason}`)
          await this.#outbox.bury(line.sequence, answer.death)
          dead++
        } else {
          this.#warn(answer)
          break
        }
      }
      await this.#outbox.settle()
    } catch (error) {
      // Nothing is lost: accepted records that are sent again are duplicates to the service.
      this.#log.error(`the telemetry outbox can't be written: ${String(error)}`)
    }
    return { accepted, dead, waiting: this.#outbox.length }
  }

  #unreadable(why: string): Answer {
    const reason = `not a valid record: ${why}`
    return { kind: 'never', death: { reason, died_at: formatRfc3339(this.#clock()) } }
  }

  async #askAgain(record: TelemetryRecord): Promise<Answer> {
    const { signal, sleep = (ms: number) => pause(ms, { signal }) } = this.#options
    for (let tries = 1; ; tries++) {
      const answer = await this.#ask(record)
      if (answer.kind !== 'later' || tries === TRIES_MAX || signal?.aborted === true) return answer
      await sleep(Math.min(answer.retryAfterMs ?? backoffMs(tries - 1, BACKOFF), RETRY_AFTER_MAX_MS))
    }
  }

  /** Sends a request once. */
  async #ask({ method, endpoint, payload }: TelemetryRecord): Promise<Answer> {
    const { token, signal, timeoutMs = 10_000, fetch = globalThis.fetch } = this.#options
    if (signal?.aborted === true) return { kind: 'later', why: 'the time for telemetry is up' }
    const tooLong = AbortSignal.timeout(timeoutMs)
    // The URL is not shown, because it may contain a password.
    if (this.#url === undefined)
      return { kind: 'later', why: 'TELEMETRY_API_URL is not a plain http or https URL' }
    const headers: Record<string, string> = { 'content-type': 'application/json' }
    if (token !== undefined) headers['authorization'] = `Bearer ${token}`
    try {
      const response = await fetch(`${this.#url}${endpoint}`, {
        method,
        headers,
        body: JSON.stringify(payload),
        // The token must not be sent to another address.
        redirect: 'manual',
        signal: signal === undefined ? tooLong : AbortSignal.any([tooLong, signal]),
      })
      const text = await response.text()
      return this.#judge(response, text)
    } catch (error) {
      return { kind: 'later', why: reasonOf(error) }
    }
  }

  #judge(response: Response, text: string): Answer {
    const { status } = response
    if (response.ok) return { kind: 'accepted' }
    if (FORBIDDEN.includes(status)) return { kind: 'forbidden', why: `HTTP ${status}` }
    if (status >= 400 && status < 500 && !LATER.includes(status)) {
      const answer = answerOf(text)
      const reason = `HTTP ${status}: ${JSON.stringify(answer).slice(0, 300)}`
      return { kind: 'never', death: { reason, status, answer, died_at: formatRfc3339(this.#clock()) } }
    }
    const wait = retryAfterMs(response.headers.get('retry-after'), this.#clock())
    return { kind: 'later', why: `HTTP ${status}`, ...(wait === undefined ? {} : { retryAfterMs: wait }) }
  }

  #warn(answer: Extract<Answer, { kind: 'later' | 'forbidden' }>): void {
    if (answer.kind === 'later') {
      this.#log.warn(`telemetry waits in the outbox: ${answer.why}`)
      return
    }
    // One warning is enough: it stays true until the operator acts.
    if (this.#warnedOfAuth) return
    this.#warnedOfAuth = true
    this.#log.warn(`telemetry waits in the outbox: ${answer.why}, check TELEMETRY_API_AUTH_TOKEN`)
  }

  #unwritten(error: unknown): Delivery {
    this.#log.error(`a telemetry record is lost, because the outbox can't be written: ${String(error)}`)
    return 'unwritten'
  }
}

function baseUrlOf(text: string): string | undefined {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) return undefined
  const { username, password, origin, pathname } = new URL(text)
  if (username !== '' || password !== '') return undefined
  return `${origin}${pathname}`.replace(/\/+$/, '')
}

function answerOf(text: string): unknown {
  try {
    return text.length <= ANSWER_CHARS_MAX ? JSON.parse(text) : text.slice(0, ANSWER_CHARS_MAX)
  } catch (error) {
    if (error instanceof SyntaxError) return text
    throw error
  }
}

/** The message `fetch failed` says nothing. Its cause does. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const code = (error.cause as { code?: unknown } | undefined)?.code
  return typeof code === 'string' ? `${error.message} (${code})` : error.message
}
