import { createHash, type Hash, randomBytes } from 'node:crypto'
import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { newId, type Random } from '../core/id.ts'
import { formatRfc3339, parseRfc3339 } from '../core/time.ts'
import { applyEvent } from './apply-event.ts'
import { eventHash, lineOf } from './chain.ts'
import { contractProblems } from './contracts.ts'
import type { LaunchEvent, LaunchEventType, LaunchPayloads, LaunchSnapshot } from './events.ts'
import type { LaunchState } from './launch-state.ts'
import type { EventLog } from './log.ts'
import { snapshotOf } from './snapshot.ts'
import type { StateModel } from './states.ts'
import { spanIdAfter, turnOf } from './turns.ts'

/** The spans of an event. */
export interface Spans {
  /** The span of the activity that the event is about; the run's by default. */
  readonly spanId?: string
  /** The span in which that activity was started. */
  readonly parentSpanId?: string
}

export interface JournalOptions {
  readonly runId: string
  readonly model: StateModel
  readonly log: EventLog
  /** Called in order, with snapshots of durable events. */
  readonly writeSnapshot: (snapshot: LaunchSnapshot) => Promise<void>
  /** Called in order with each durable event, before its `append` resolves. */
  readonly onEvent: (event: LaunchEvent, index: number) => void
  readonly clock: () => number
  readonly random?: Random
}

/** The events after which a snapshot is written: all changes of state, and all that pause or end a run. */
const SNAPSHOT_AFTER: ReadonlySet<LaunchEventType> = new Set<LaunchEventType>([
  'RUN_CREATED',
  'RUN_STATE_CHANGED',
  'RESUME_REWIND',
  'RUN_RESTARTED',
  'RUN_PAUSED',
  'RUN_RESUMED',
  'RUN_COMPLETED',
  'RUN_FAILED',
  'RUN_CANCELLED',
])

/**
 * The only writer of a run's log. It applies an event to the state before it
 * writes it, so an illegal event never reaches the log. The snapshot is
 * written after the event is durable.
 */
export class Journal {
  readonly #options: JournalOptions
  #state: LaunchState | undefined
  readonly #digest: Hash = createHash('sha256')
  #events = 0
  #bytes = 0
  #last: { readonly hash: string; readonly ts: string } = { hash: '', ts: formatRfc3339(0) }
  #traceId: string
  #rootSpanId: string
  #nodeSpanId = ''
  /** The first failed write. Nothing is written after it. */
  #failure: unknown
  /** Settles when the last event is durable and its snapshot is written. */
  #settled: Promise<void> = Promise.resolve()

  constructor(options: JournalOptions) {
    this.#options = options
    this.#traceId = this.newHex(16)
    this.#rootSpanId = this.newHex(8)
  }

  /** Continues the log after these events. */
  adopt(events: readonly LaunchEvent[], state: LaunchState): void {
    this.#traceId = events[0].trace_id
    this.#rootSpanId = events[0].span_id
    for (const event of events) this.#count(event, lineOf(event))
    this.#state = state
  }

  /** The state after all appended events. */
  get state(): LaunchState {
    if (this.#state === undefined) throw new AnnalsError('ILLEGAL_STATE', 'the run is not created yet')
    return this.#state
  }

  get traceId(): string {
    return this.#traceId
  }

  /** The span of the run: that of its first event. */
  get rootSpanId(): string {
    return this.#rootSpanId
  }

  /** The span of the node of the current state. */
  get nodeSpanId(): string {
    return this.#nodeSpanId
  }

  /** Random bytes in hex. */
  newHex(bytes: number): string {
    return Buffer.from((this.#options.random ?? randomBytes)(bytes)).toString('hex')
  }

  /** Resolves once the event is durable. An event that may not follow is `ILLEGAL_STATE` and changes nothing. */
  async append<T extends LaunchEventType>(
    type: T,
    payload: LaunchPayloads[T],
    spans: Spans = {},
  ): Promise<LaunchEvent> {
    const { log, model, onEvent, writeSnapshot } = this.#options
    if (this.#failure !== undefined) throw this.#failure
    const event = this.#event(type, payload, spans)
    const state = applyEvent(this.#state, event, model)
    const line = lineOf(event)
    this.#state = state
    this.#count(event, line)
    const index = this.#events
    const snapshot = SNAPSHOT_AFTER.has(type) ? snapshotOf(state, this.#seal()) : undefined
    const written = log.append(line)
    // If an earlier event failed, this promise is never awaited: its caller gets the earlier failure.
    written.catch(() => undefined)
    this.#settled = this.#settled.then(async () => {
      await written
      onEvent(event, index)
      if (snapshot !== undefined) await writeSnapshot(snapshot)
    })
    try {
      await this.#settled
    } catch (error) {
      this.#failure = error
      throw error
    }
    return event
  }

  /** Why nothing more is written. The next process finds out what is on disk. */
  get failure(): unknown {
    return this.#failure
  }

  #event<T extends LaunchEventType>(type: T, payload: LaunchPayloads[T], spans: Spans): LaunchEvent {
    const { runId, clock, random } = this.#options
    const now = Math.max(Math.floor(clock()), parseRfc3339(this.#last.ts, { offset: 'any' }) as number)
    const head = {
      event_id: newId(random),
      run_id: runId,
      ts: formatRfc3339(now),
      type,
      // A copy as a reader would parse it: later changes by the caller have no effect, and -0 is 0.
      payload: JSON.parse(canonicalJson(payload)) as LaunchPayloads[T],
      trace_id: this.#traceId,
      span_id: spans.spanId ?? this.#rootSpanId,
      ...(spans.parentSpanId === undefined ? {} : { parent_span_id: spans.parentSpanId }),
      prev_hash: this.#last.hash,
    }
    const event = { ...head, event_hash: eventHash(head) }
    const [problem] = contractProblems('event', event)
    if (problem === undefined) return event as LaunchEvent
    const message = `invalid ${type}: ${problem.path} ${problem.message}`
    throw new AnnalsError('INVALID_ARGUMENT', message, { type, path: problem.path })
  }

  #count(event: LaunchEvent, line: string): void {
    if (turnOf(event, this.#rootSpanId, this.#options.model) !== undefined)
      this.#nodeSpanId = spanIdAfter(event, 'node')
    this.#digest.update(line)
    this.#events++
    this.#bytes += Buffer.byteLength(line)
    this.#last = { hash: event.event_hash, ts: event.ts }
  }

  #seal(): LaunchSnapshot['log'] {
    return { events: this.#events, bytes: this.#bytes, sha256: this.#digest.copy().digest('hex') }
  }
}
