import { inspect } from 'node:util'
import { canonicalJsonBytes } from '../core/canonical-json.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
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

/** Options of `createProducer`. */
export interface ProducerOptions extends RunHeading {
  /** The ledger that stores the events: `db.ledger`, or a client's ledger. */
  readonly store: Pick<RunStateStore, 'appendEvent' | 'fetchEvents'>
  /** Keeps the chosen event ids: `db.ledger.registry`, or `openFileRegistry(path)`. */
  readonly registry: EventIdRegistry
  /** The runtime's own attempt number; 1 by default. */
  readonly engineAttemptId?: number
  /** The epoch of the lease that the producer holds. */
  readonly epoch?: number
  /**
   * Set it if the program runs again from its beginning and repeats every earlier call. Attempts are then counted from 1 again,
   * and calls whose events the ledger has are answered from there. Without it, the producer continues where the run stands.
   */
  readonly replay?: boolean
  /** What to do about an invalid transition: stop sending (`stop`, the default), or first fail the run or step (`fail`). */
  readonly onInvalid?: 'stop' | 'fail'
  /** How failed calls of the ledger and the registry are retried. */
  readonly retry?: RetryOptions
  /** Gives the time for `emittedAt` in milliseconds since 1970. `Date.now` by default. */
  readonly clock?: () => number
}

/** The payload of an event that a producer sends: a JSON object. */
export type Payload = NonNullable<RunEventWrite['payload']>

/** How many records the producer reads at a time while it learns the run's state. */
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

/** Creates a producer that sends the events of one run. */
export function createProducer(options: ProducerOptions): Producer {
  return new Producer(options)
}

/**
 * The producer's side of the contract. For each event it checks the transition
 * against the state it believes in (Layer 1) → claims an event id in the
 * registry → appends, with retries → adopts the ledger's answer. Events are sent
 * one after the other, in the order of the calls. After an invalid transition,
 * nothing more is sent for that run or step.
 */
export class Producer {
  readonly #options: ProducerOptions
  #believed: Promise<Belief> | undefined
  #last: Promise<unknown> = Promise.resolve()
  /** The run (`''`) or steps for which nothing more is sent, with the reason. */
  readonly #stopped = new Map<string, AnnalsError>()

  /** @internal Use `createProducer`. */
  constructor(options: ProducerOptions) {
    checkOptions('createProducer', options, OPTIONS)
    const { store, registry, onInvalid = 'stop' } = options
    for (const method of ['appendEvent', 'fetchEvents'] as const)
      checkFunction(`store.${method}`, store?.[method])
    for (const method of ['claim', 'adopt'] as const) checkFunction(`registry.${method}`, registry?.[method])
    if (onInvalid !== 'stop' && onInvalid !== 'fail') {
      throw invalidArgument('onInvalid', "must be 'stop' or 'fail'", onInvalid)
    }
    this.#options = { ...options }
  }

  /** Sends `RunQueued`: the run waits to be started. */
  runQueued(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunQueued', payload)
  }

  /** Sends `RunStarted`. */
  runStarted(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunStarted', payload)
  }

  /** Sends `RunPaused`, with the next pause cycle as its attempt. */
  pause(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunPaused', payload)
  }

  /** Sends `RunResumed` for the current pause cycle. */
  resume(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunResumed', payload)
  }

  /** Sends `RunCompleted`, which is final. */
  runCompleted(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunCompleted', payload)
  }

  /** Sends `RunFailed`, which is final, with the error in its payload. */
  runFailed(error: unknown, payload?: Payload): Promise<AppendResult> {
    return this.#run('RunFailed', { ...payload, error: errorOf(error) })
  }

  /** Sends `RunCancelled`, which is final. */
  runCancelled(payload?: Payload): Promise<AppendResult> {
    return this.#run('RunCancelled', payload)
  }

  /** Sends `StepStarted` for the first attempt, or for the next one after a failure. */
  stepStarted(stepId: string, payload?: Payload): Promise<AppendResult> {
    return this.#step('StepStarted', stepId, payload)
  }

  /** Sends `StepCompleted` for the current attempt. */
  stepCompleted(stepId: string, payload?: Payload): Promise<AppendResult> {
    return this.#step('StepCompleted', stepId, payload)
  }

  /** Sends `StepFailed` for the current attempt, with the error in its payload. */
  stepFailed(stepId: string, error: unknown, payload?: Payload): Promise<AppendResult> {
    return this.#step('StepFailed', stepId, { ...payload, error: errorOf(error) })
  }

  /** Sends `StepSkipped` for a step that has not started. */
  stepSkipped(stepId: string, payload?: Payload): Promise<AppendResult> {
    return this.#step('StepSkipped', stepId, payload)
  }

  /** Sends an event of any other type, which changes no state. Two with the same type, step and attempt are duplicates. */
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

  /** L22: the event id is durable in the registry before the event is sent. */
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

  /** L23: the ledger's answer wins, so the registry adopts its event id. */
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
    // Even if this fails, nothing more is sent, and the error is about the invalid transition.
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

  /** Sends `RunFailed` or `StepFailed`, if that transition is allowed. */
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
    // The next call waits for this one, but does not fail with it.
    this.#last = turn.catch(() => undefined)
    return turn
  }

  /** The run's state as the ledger has it. It is read once. */
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

/** The producer's own state of its run, and the keys of the events that the ledger has. */
class Belief {
  readonly keys: Set<string> = new Set()
  /** The state of the run. Transitions are checked against it. */
  readonly #run = new Reducer()
  /** The state after the calls so far, which gives attempts and pauses their numbers. A replay starts with an empty one. */
  readonly #calls: Reducer
  /** LD1: the number of pauses so far. */
  #pauses = 0
  #seq = 0

  constructor(replay: boolean) {
    this.#calls = replay ? new Reducer() : this.#run
  }

  /** Learns of a record in the ledger. */
  learn(record: RunEventRecord): void {
    this.keys.add(record.idempotencyKey)
    this.#add(this.#run, record)
  }

  /** Notes that a call was answered. */
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

  /** LD1: a pause and its resumption have the number of the pause. Other run events happen once. */
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

  /** Why the event is not allowed next; undefined if it is. */
  refusalOf(eventType: string, stepId: string | undefined, logicalAttemptId: number): Refusal | undefined {
    return this.#run.refusalOf(eventType, stepId, logicalAttemptId)
  }
}

/** LD1: the producer numbers attempts and pauses itself, so known types have their own methods. */
function hasItsOwnMethod(eventType: string): AnnalsError {
  const method = { RunPaused: 'pause', RunResumed: 'resume' }[eventType]
  const own = method ?? eventType[0].toLowerCase() + eventType.slice(1)
  return invalidArgument('eventType', `must not be ${eventType} in emit: call ${own} instead`, eventType)
}

/** A copy, because the event may be sent later. A payload that can't be copied is refused by the store, with the reason. */
function copyOf(payload: Payload | undefined): Payload | undefined {
  if (payload === undefined) return undefined
  try {
    return parseJson(canonicalJsonBytes(payload)) as Payload
  } catch (error) {
    if (error instanceof AnnalsError) return payload
    throw error
  }
}

/** Longer texts of an error are cut. */
const ERROR_CHARS_MAX = 64 * 1024

/** Turns anything that was thrown into JSON. An Error has no enumerable fields, so its parts are named. */
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
