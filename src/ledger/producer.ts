import { inspect } from 'node:util'
import { canonicalJsonBytes } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { newId } from '../core/id.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import { type RetryOptions, retried } from '../core/retry.ts'
import { parseJson } from '../core/value.ts'
import type { EventIdRegistry } from './event-id-registry.ts'
import { deriveIdempotencyKey } from './idempotency-key.ts'
import { factOf, Reducer, type Refusal } from './reduce.ts'
import type {
  AppendResult,
  KnownRunEventType,
  RunEventRecord,
  RunEventWrite,
  RunHeading,
  RunStateStore,
} from './run-events.ts'
import { expectedStates, transitionOf } from './transitions.ts'

export interface ProducerOptions extends RunHeading {
  /** Where events go: `db.ledger`, or a client of a server. */
  readonly store: Pick<RunStateStore, 'appendEvent' | 'fetchEvents'>
  /** Where chosen event ids are kept: `db.ledger.registry`, or `openFileRegistry(path)`. */
  readonly registry: EventIdRegistry
  /** The runtime's own count of attempts; 1 where it has none. */
  readonly engineAttemptId?: number
  /** That of a lease under which is written. */
  readonly epoch?: number
  /**
   * The program runs again from its beginning, and every call it made before it makes again: calls are counted from nothing,
   * and those that the ledger knows are answered from there. Without it the producer goes on where the run stands.
   */
  readonly replay?: boolean
  /** What an invalid transition comes to: nothing more is sent (`stop`), or the run or step is failed first. */
  readonly onInvalid?: 'stop' | 'fail'
  readonly retry?: RetryOptions
  /** Milliseconds since 1970, for `emittedAt`. */
  readonly clock?: () => number
}

export type Payload = NonNullable<RunEventWrite['payload']>

/** Records that are in memory at a time while the producer learns how its run stands. */
const RECORDS_AT_ONCE = 1_000

const OPTIONS = [
  'store',
  'registry',
  'runId',
  'tenantId',
  'projectId',
  'environmentId',
  'planId',
  'planVersion',
  'engineAttemptId',
  'epoch',
  'replay',
  'onInvalid',
  'retry',
  'clock',
]

/** Sends the events of one run. */
export function createProducer(options: ProducerOptions): Producer {
  return new Producer(options)
}

/**
 * The producer's side of the contract. For each event: believe a state → check
 * that the event may follow (Layer 1) → fix its id in the registry → append,
 * again and again while the failure may pass → adopt what the ledger answers.
 * Events leave one after the other, in the order of the calls. After a
 * transition that may not be, nothing more is sent for that run or step.
 */
export class Producer {
  readonly #options: ProducerOptions
  #believed: Promise<Belief> | undefined
  #last: Promise<unknown> = Promise.resolve()
  /** What nothing more is sent for: `''` is the run, others are steps. */
  readonly #stopped = new Map<string, AnnalsError>()

  /** @internal Use `createProducer`. */
  constructor(options: ProducerOptions) {
    checkOptions('createProducer', options, OPTIONS)
    const { store, registry, onInvalid = 'stop' } = options
    for (const method of ['appendEvent', 'fetchEvents'] as const)
      checkFunction(`store.${method}`, store?.[method])
    for (const method of ['claim', 'adopt'] as const) checkFunction(`registry.${method}`, registry?.[method])
    if (onInvalid !== 'stop' && onInvalid !== 'fail') {
      const message = "onInvalid must be 'stop' or 'fail'"
      throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'onInvalid', value: onInvalid })
    }
    this.#options = { ...options }
  }

  runQueued(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunQueued', payload)
  }

  runStarted(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunStarted', payload)
  }

  pause(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunPaused', payload)
  }

  resume(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunResumed', payload)
  }

  runCompleted(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunCompleted', payload)
  }

  runFailed(error: unknown, payload?: Payload): Promise<AppendResult> {
    return this.#run('RunFailed', { ...payload, error: errorOf(error) })
  }

  runCancelled(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunCancelled', payload)
  }

  /** A first attempt; after one that failed, the next. */
  stepStarted(stepId: string, payload?: Payload): Promise<AppendResult> {
    return this.#step('StepStarted', stepId, payload)
  }

  stepCompleted(stepId: string, payload?: Payload): Promise<AppendResult> {
    return this.#step('StepCompleted', stepId, payload)
  }

  stepFailed(stepId: string, error: unknown, payload?: Payload): Promise<AppendResult> {
    return this.#step('StepFailed', stepId, { ...payload, error: errorOf(error) })
  }

  stepSkipped(stepId: string, payload?: Payload): Promise<AppendResult> {
    return this.#step('StepSkipped', stepId, payload)
  }

  /** An event of another type: it changes no state. Two with the same type, step and attempt are one. */
  emit(
    eventType: string,
    options: {
      readonly stepId?: string
      readonly logicalAttemptId?: number
      readonly payload?: Payload
    } = {},
  ): Promise<AppendResult> {
    checkOptions('emit', options, ['stepId', 'logicalAttemptId', 'payload'])
    const { stepId, logicalAttemptId = 1 } = options
    if (transitionOf(eventType) !== undefined) return Promise.reject(hasItsOwnMethod(eventType))
    const payload = copyOf(options.payload)
    return this.#inTurn(belief => this.#send(belief, eventType, stepId, logicalAttemptId, payload))
  }

  #run(eventType: KnownRunEventType, given: Payload | undefined): Promise<AppendResult> {
    const payload = copyOf(given)
    return this.#inTurn(belief =>
      this.#send(belief, eventType, undefined, belief.attemptOfRun(eventType), payload),
    )
  }

  #step(eventType: KnownRunEventType, stepId: string, given: Payload | undefined): Promise<AppendResult> {
    const payload = copyOf(given)
    return this.#inTurn(belief =>
      this.#send(belief, eventType, stepId, belief.attemptOfStep(eventType, stepId), payload),
    )
  }

  async #send(
    belief: Belief,
    eventType: string,
    stepId: string | undefined,
    logicalAttemptId: number,
    payload: Payload | undefined,
  ): Promise<AppendResult> {
    this.#refuseStopped(stepId)
    const { runId, planId, planVersion } = this.#options
    const identity = { runId, eventType, logicalAttemptId, planId, planVersion }
    const idempotencyKey = deriveIdempotencyKey({ ...identity, ...(stepId === undefined ? {} : { stepId }) })
    const isKnown = belief.keys.has(idempotencyKey)
    const refusal = isKnown ? undefined : belief.refusalOf(eventType, stepId, logicalAttemptId)
    if (refusal !== undefined) return this.#stop(belief, eventType, stepId, refusal)
    const event = await this.#event(idempotencyKey, eventType, stepId, logicalAttemptId, payload)
    const result = await this.#append(event)
    belief.take(event, result)
    return result
  }

  /** L22: the id is durable before anybody else hears of it. */
  async #event(
    idempotencyKey: string,
    eventType: string,
    stepId: string | undefined,
    logicalAttemptId: number,
    payload: Payload | undefined,
  ): Promise<RunEventWrite> {
    const { runId, tenantId, projectId, environmentId, planId, planVersion } = this.#options
    const { registry, engineAttemptId = 1, clock = Date.now } = this.#options
    const eventId = await this.#retried(() => registry.claim(runId, idempotencyKey, newId()))
    return {
      eventId,
      eventType,
      emittedAt: new Date(clock()).toISOString(),
      runId,
      tenantId,
      projectId,
      environmentId,
      planId,
      planVersion,
      engineAttemptId,
      logicalAttemptId,
      idempotencyKey,
      ...(stepId === undefined ? {} : { stepId }),
      ...(payload === undefined ? {} : { payload }),
    }
  }

  /** L23: what the ledger answers is the truth, also about the id. */
  async #append(event: RunEventWrite): Promise<AppendResult> {
    const { store, registry, epoch } = this.#options
    const { runId, idempotencyKey, eventId } = event
    const result = await this.#retried(() => store.appendEvent(event, epoch === undefined ? {} : { epoch }))
    if (result.eventId !== eventId) {
      await this.#retried(() => registry.adopt(runId, idempotencyKey, result.eventId))
    }
    return result
  }

  /** L25. */
  async #stop(
    belief: Belief,
    eventType: string,
    stepId: string | undefined,
    { priorState, attemptedState, reason }: Refusal,
  ): Promise<never> {
    const { runId, onInvalid = 'stop' } = this.#options
    const what = stepId === undefined ? `run ${JSON.stringify(runId)}` : `step ${JSON.stringify(stepId)}`
    const details = {
      invalidTransitionDetected: true,
      expectedState: expectedStates(eventType),
      actualState: priorState,
      attemptedEventType: eventType,
    }
    // Whether or not that works, nothing more is sent, and what was wrong at first is what is said.
    const cause =
      onInvalid === 'fail'
        ? await this.#fail(belief, stepId, details).then(
            () => undefined,
            (error: unknown) => error,
          )
        : undefined
    const error = new AnnalsError(
      'INVALID_TRANSITION',
      `${eventType} can't bring ${what} to ${attemptedState}: ${reason}. Nothing more is sent for it`,
      { runId, ...(stepId === undefined ? {} : { stepId }), ...details },
      cause,
    )
    this.#stopped.set(stepId ?? '', error)
    throw error
  }

  /** Sends that the run or step has failed, where it may fail. */
  async #fail(belief: Belief, stepId: string | undefined, details: Payload): Promise<void> {
    const failure = stepId === undefined ? 'RunFailed' : 'StepFailed'
    const attempt = stepId === undefined ? 1 : belief.attemptOfStep(failure, stepId)
    if (belief.refusalOf(failure, stepId, attempt) !== undefined) return
    await this.#send(belief, failure, stepId, attempt, details)
  }

  #refuseStopped(stepId: string | undefined): void {
    const cause = this.#stopped.get('') ?? (stepId === undefined ? undefined : this.#stopped.get(stepId))
    if (cause === undefined) return
    const message = `nothing more is sent: ${cause.message}`
    throw new AnnalsError('ILLEGAL_STATE', message, cause.details, cause)
  }

  #inTurn<T>(work: (belief: Belief) => Promise<T>): Promise<T> {
    const turn = this.#last.then(async () => work(await this.#believe()))
    // Whoever comes next waits for this one, but its failure is not theirs.
    this.#last = turn.catch(() => undefined)
    return turn
  }

  /** How the run stands, as far as the ledger knows; asked once. */
  #believe(): Promise<Belief> {
    this.#believed ??= this.#load().catch(error => {
      this.#believed = undefined
      throw error
    })
    return this.#believed
  }

  async #load(): Promise<Belief> {
    const { store, runId, replay = false } = this.#options
    const belief = new Belief(replay)
    for (let afterSeq = 0; ; ) {
      const page = await this.#retried(() => store.fetchEvents(runId, { afterSeq, limit: RECORDS_AT_ONCE }))
      for (const record of page) {
        belief.learn(record)
        afterSeq = record.runSeq
      }
      if (page.length === 0) return belief
    }
  }

  #retried<T>(work: () => Promise<T>): Promise<T> {
    return retried(work, this.#options.retry)
  }
}

/** What a producer believes of its run: a state like the projector's, and which events are out already. */
class Belief {
  readonly keys: Set<string> = new Set()
  /** How the run stands: what may follow is judged by it. */
  readonly #run = new Reducer()
  /** How far the calls have come, by which attempts and pauses are counted. In a replay they begin anew. */
  readonly #calls: Reducer
  /** LD1: pauses so far. */
  #pauses = 0
  #seq = 0

  constructor(replay: boolean) {
    this.#calls = replay ? new Reducer() : this.#run
  }

  /** A record that is there already. */
  learn(record: RunEventRecord): void {
    this.keys.add(record.idempotencyKey)
    this.#add(this.#run, record)
  }

  /** A call that was answered. */
  take(event: RunEventWrite, { persistedAt }: AppendResult): void {
    const record = { ...event, persistedAt, runSeq: 0 }
    if (!this.keys.has(event.idempotencyKey)) this.learn(record)
    if (this.#calls !== this.#run) this.#add(this.#calls, record)
  }

  #add(reducer: Reducer, record: RunEventRecord): void {
    reducer.add({ ...factOf(record), runSeq: ++this.#seq })
    if (reducer !== this.#calls || record.eventType !== 'RunPaused') return
    this.#pauses = Math.max(this.#pauses, record.logicalAttemptId)
  }

  /** LD1: a pause, and the resumption from it, are numbered; other run events happen once. */
  attemptOfRun(eventType: KnownRunEventType): number {
    const isPaused = this.#calls.run?.status === 'PAUSED'
    if (eventType === 'RunPaused') return isPaused ? this.#pauses : this.#pauses + 1
    return eventType === 'RunResumed' ? Math.max(1, this.#pauses) : 1
  }

  attemptOfStep(eventType: KnownRunEventType, stepId: string): number {
    const step = this.#calls.steps.get(stepId)
    if (step === undefined) return 1
    const isNext = eventType === 'StepStarted' || eventType === 'StepSkipped'
    return isNext && step.status === 'FAILED' ? step.logicalAttemptId + 1 : step.logicalAttemptId
  }

  /** Why the event may not follow, if it may not. */
  refusalOf(eventType: string, stepId: string | undefined, logicalAttemptId: number): Refusal | undefined {
    return this.#run.refusalOf(eventType, stepId, logicalAttemptId)
  }
}

/** LD1: attempts and pauses are the producer's to number. */
function hasItsOwnMethod(eventType: string): AnnalsError {
  const method = { RunPaused: 'pause', RunResumed: 'resume' }[eventType]
  const own = method ?? eventType[0].toLowerCase() + eventType.slice(1)
  const message = `emit is for events that the contract does not know: call ${own} for ${eventType}`
  return new AnnalsError('INVALID_ARGUMENT', message, { name: 'eventType', value: eventType })
}

/** As it is now: events wait for their turn. What can't be copied the store will refuse, and say why. */
function copyOf(payload: Payload | undefined): Payload | undefined {
  if (payload === undefined) return undefined
  try {
    return parseJson(canonicalJsonBytes(payload)) as Payload
  } catch (error) {
    if (error instanceof AnnalsError) return payload
    throw error
  }
}

/** Of an error's texts: beyond it they are cut. */
const ERROR_CHARS_MAX = 64 * 1024

/** As JSON, whatever was thrown: that something failed can always be told. An Error has nothing to enumerate. */
function errorOf(error: unknown): unknown {
  if (!(error instanceof Error))
    return isPlain(error) ? error : { name: typeof error, message: textOf(error) }
  const code: unknown = (error as { code?: unknown }).code
  return {
    name: textOf(error.name),
    message: textOf(error.message),
    ...(typeof code === 'string' ? { code: textOf(code) } : {}),
  }
}

function isPlain(error: unknown): boolean {
  try {
    return canonicalJsonBytes(error).length <= ERROR_CHARS_MAX
  } catch (refusal) {
    if (refusal instanceof AnnalsError) return false
    throw refusal
  }
}

function textOf(value: unknown): string {
  const text = typeof value === 'string' ? value : inspect(value, { depth: 2 })
  return text.slice(0, ERROR_CHARS_MAX).toWellFormed()
}
