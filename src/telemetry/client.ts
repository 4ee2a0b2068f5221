import { pause } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { formatRfc3339 } from '../core/time.ts'
import type { Disk } from '../disk/disk.ts'
import { postRun, readRecord, type TelemetryRecord, truncationRun } from './model.ts'
import { type Death, Outbox, type TelemetryLog } from './outbox.ts'
import { retryAfterMs } from './retry-after.ts'

/**
 * Sends telemetry records, in order, and never fails: what can't be delivered
 * now waits in the outbox.
 *
 * State machine of a record: sent at once if nothing waits → accepted | dead |
 * waiting; sent by a flush → accepted | dead | still waiting, and then all
 * behind it wait too. While anything waits, what comes later joins it without
 * asking the service.
 */

export interface TelemetryClientOptions {
  /** The address of the service. */
  readonly baseUrl: string
  readonly token?: string
  /** The run's folder, where the outbox is. */
  readonly disk: Disk
  /** For the record that tells of a full outbox. */
  readonly runId?: string
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>
  readonly clock?: () => number
  readonly sleep?: (ms: number) => Promise<void>
  readonly log: TelemetryLog
  /** Of one try. 10 s without it. */
  readonly timeoutMs?: number
  readonly bytesMax?: number
  /** Once it aborts the service is not asked any more: whatever is left waits in the outbox. */
  readonly signal?: AbortSignal
}

/** `unwritten`: it could not be kept, so it is in memory at best. */
export type Delivery = 'accepted' | 'waiting' | 'dead' | 'unwritten'

export interface FlushReport {
  readonly accepted: number
  readonly dead: number
  /** Those that still wait. */
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
/** Besides 5xx: those that may pass by themselves. */
const LATER: readonly number[] = [408, 425, 429]
const FORBIDDEN: readonly number[] = [401, 403]
const ANSWER_CHARS_MAX = 4_096

export class TelemetryClient {
  readonly #options: TelemetryClientOptions
  readonly #outbox: Outbox
  /** Undefined if what was given is none: then everything waits, as if the service were down. */
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

  /**
   * In the order of the calls. `ifWaiting` goes to the outbox in its place if it can't be delivered now: the end of a
   * launch says something else then.
   */
  send(record: TelemetryRecord, ifWaiting: TelemetryRecord = record): Promise<Delivery> {
    const turn = this.#last
      .then(() => this.#deliver(record, ifWaiting))
      .catch(error => this.#unwritten(error))
    this.#last = turn
    return turn
  }

  /** Sends what waits, oldest first, up to the first record that can't be delivered. One at a time. */
  async flush(): Promise<FlushReport> {
    await this.#last
    // One that is under way may be about to give up: it counts as no try of ours.
    await this.#flush
    this.#flush ??= this.#flushOnce().finally(() => {
      this.#flush = undefined
    })
    return this.#flush
  }

  /** Waits for requests that were sent. Records that could not be sent stay in the outbox. */
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
      // Nothing is lost by it: what was accepted is sent again, and known to be a duplicate.
      this.#log.error(`the telemetry outbox can't be written: ${String(error)}`)
    }
    return { accepted, dead, waiting: this.#outbox.length }
  }

  #unreadable(why: string): Answer {
    const reason = `no record: ${why}`
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

  /** One try. */
  async #ask({ method, endpoint, payload }: TelemetryRecord): Promise<Answer> {
    const { token, signal, timeoutMs = 10_000, fetch = globalThis.fetch } = this.#options
    if (signal?.aborted === true) return { kind: 'later', why: 'the time for telemetry is up' }
    const tooLong = AbortSignal.timeout(timeoutMs)
    // Not shown, as it may hold a password.
    if (this.#url === undefined)
      return { kind: 'later', why: 'TELEMETRY_API_URL is no plain http or https URL' }
    const headers: Record<string, string> = { 'content-type': 'application/json' }
    if (token !== undefined) headers['authorization'] = `Bearer ${token}`
    try {
      const response = await fetch(`${this.#url}${endpoint}`, {
        method,
        headers,
        body: JSON.stringify(payload),
        // To wherever it points, the token was not meant to go.
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
    // Until the operator acts, every record would say the same.
    if (this.#warnedOfAuth) return
    this.#warnedOfAuth = true
    this.#log.warn(`telemetry waits in the outbox: ${answer.why}, check TELEMETRY_API_AUTH_TOKEN`)
  }

  #unwritten(error: unknown): Delivery {
    this.#log.error(`a telemetry record can't be kept, and is lost if the process ends now: ${String(error)}`)
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

/** `fetch failed` says nothing; its cause does. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const code = (error.cause as { code?: unknown } | undefined)?.code
  return typeof code === 'string' ? `${error.message} (${code})` : error.message
}
