import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import { pause } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { artifactPart } from './artifacts.ts'
import type { AnyWorkOptions, LaunchEvents, WorkerContext } from './context.ts'
import type { RuntimeWorker } from './definition.ts'
import type { ArtifactRef, LaunchFailure, WorkItem } from './events.ts'
import type { Spans } from './journal.ts'
import { llmEvents, type OpenLlm } from './run-llm.ts'
import { CANCELLED, outcomeOf, type Session } from './session.ts'
import { withTimeLimit } from './time-limit.ts'
import {
  failureOf,
  failuresOf,
  itemsOf,
  lastFinished,
  NO_SCOPE,
  nextAttempt,
  type WorkKey,
  workItemId,
} from './work-items.ts'

const ATTEMPTS_MAX = 3
const BACKOFF = { firstMs: 100, maxMs: 30_000 }
/** The name under which the hash of what a worker is given stands among its inputs; no artifact has it. */
const GIVEN = '$input'
const OUTPUT_SCHEMA = 'urn:annals:launch:worker-output:1'
const SCHEMA_DEFAULT = 'application/octet-stream'

export interface WorkMode {
  /** Of the node that asks. */
  readonly parentSpanId: string
  /** Aborts when nobody waits for it any more. */
  readonly signal: AbortSignal
  /** Not answered from a record, though it may take up what is queued. */
  readonly isFresh?: boolean
}

/**
 * Has workers do their work. An item goes queued → running → finished or
 * failed; after a failure that may pass the next attempt is queued. Work that
 * is finished, with the same inputs, is answered from its record.
 */
export class WorkerRuns {
  readonly #session: Session
  /** Who asks for the same twice at once gets the same. */
  readonly #underWay = new Map<string, Promise<unknown>>()

  constructor(session: Session) {
    this.#session = session
  }

  run(worker: string, options: AnyWorkOptions, mode: WorkMode): Promise<unknown> {
    const { definition, key } = this.#check(worker, options)
    const name = canonicalJson(key)
    const known = this.#underWay.get(name)
    if (known !== undefined) return known
    const running = this.#run(definition, key, options.input, mode).finally(() => this.#underWay.delete(name))
    this.#underWay.set(name, running)
    return running
  }

  /** Resolves when all that was asked for has come to an end. */
  async settle(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay.values())
  }

  #check(
    worker: string,
    { scope = NO_SCOPE, input, inputs = [] }: AnyWorkOptions,
  ): {
    definition: RuntimeWorker
    key: WorkKey
  } {
    const { launch, artifacts } = this.#session
    const definition = launch.workers.get(worker)
    if (definition === undefined) {
      throw new AnnalsError('INVALID_ARGUMENT', `the launch has no worker ${String(worker)}`, { worker })
    }
    if (typeof scope !== 'string' || scope === '' || !scope.isWellFormed()) {
      throw new AnnalsError('INVALID_ARGUMENT', 'a scope must be a text that is not empty', { scope })
    }
    const given = input === undefined ? [] : [{ name: GIVEN, sha256: sha256Hex(canonicalJson(input)) }]
    const refs = [...given, ...inputs.map(name => artifacts.refOf(name))]
    return { definition, key: { worker, scope, inputs: refs } }
  }

  async #run(
    definition: RuntimeWorker,
    key: WorkKey,
    input: unknown,
    { parentSpanId, signal, isFresh = false }: WorkMode,
  ): Promise<unknown> {
    const { slots, journal } = this.#session
    if (!isFresh) {
      const done = this.#finished(key)
      if (done !== undefined) return done.value
    }
    const before = isFresh ? itemsOf(journal.state, key).length : 0
    for (;;) {
      const spans = { spanId: journal.newHex(8), parentSpanId }
      const item = await this.#queued(key, spans)
      const release = await slots.take(key.worker, signal)
      try {
        // Closed in the very moment in which the place was free: nothing begins now.
        if (slots.isClosed) continue
        const answer = await this.#attempt(definition, item, input, spans, signal)
        if ('value' in answer) return answer.value
        const failures = failuresOf(itemsOf(journal.state, key).slice(before))
        const { attemptsMax = ATTEMPTS_MAX } = definition
        if (!answer.failure.retryable || failures >= attemptsMax) throw answer.cause
        release()
        const { backoffMs: firstMs = BACKOFF.firstMs } = definition
        await pause(backoffMs(failures - 1, { ...BACKOFF, firstMs }), { signal })
        signal.throwIfAborted()
      } finally {
        release()
      }
    }
  }

  /** What it gave, if it is finished and all that it left is there. */
  #finished(key: WorkKey): { readonly value: unknown } | undefined {
    const { artifacts, journal } = this.#session
    const item = lastFinished(journal.state, key)
    if (item === undefined || !item.outputs.every(({ name }) => artifacts.isIntact(name))) return undefined
    const output = item.outputs.find(({ name }) => name === outputName(key))
    return { value: output === undefined ? undefined : artifacts.readJson(output.name) }
  }

  async #queued(key: WorkKey, spans: Spans): Promise<WorkItem> {
    const { journal } = this.#session
    const { worker, scope, inputs } = key
    const waiting = itemsOf(journal.state, key).find(({ status }) => status === 'queued')
    if (waiting !== undefined) return waiting
    const { run_id } = journal.state
    const attempt = nextAttempt(journal.state, worker, scope)
    const work_item_id = workItemId(run_id, worker, attempt, scope)
    await journal.append(
      'WORK_ITEM_QUEUED',
      { work_item_id, worker, scope_key: scope, attempt, inputs },
      spans,
    )
    return journal.state.work_items.findLast(item => item.work_item_id === work_item_id) as WorkItem
  }

  async #attempt(
    definition: RuntimeWorker,
    item: WorkItem,
    input: unknown,
    spans: Required<Spans>,
    signal: AbortSignal,
  ): Promise<{ readonly value: unknown } | { readonly failure: LaunchFailure; readonly cause: unknown }> {
    const { journal, clock, tell } = this.#session
    const { work_item_id, worker } = item
    const activity = { name: worker, id: work_item_id, ...spans, startedAt: clock() }
    const outputs = new Map<string, ArtifactRef>()
    const started = journal.append('WORK_ITEM_STARTED', { work_item_id }, spans)
    tell('workerStarted', activity)
    await started
    const finish = (failure?: LaunchFailure): void =>
      tell('workerFinished', {
        ...activity,
        ...outcomeOf(failure),
        durationMs: clock() - activity.startedAt,
      })
    try {
      const value = await this.#execute(definition, item, input, spans, outputs, signal)
      const refs = [...outputs.values()]
      await journal.append('WORK_ITEM_FINISHED', { work_item_id, outputs: refs }, spans)
      finish()
      return { value }
    } catch (cause) {
      const failure = signal.aborted
        ? { code: CANCELLED, message: 'it was called off', retryable: false }
        : failureOf(cause)
      await journal.append('WORK_ITEM_FAILED', { work_item_id, error: failure }, spans)
      finish(failure)
      return { failure, cause }
    }
  }

  async #execute(
    { run, timeoutMs }: RuntimeWorker,
    item: WorkItem,
    input: unknown,
    spans: Required<Spans>,
    outputs: Map<string, ArtifactRef>,
    signal: AbortSignal,
  ): Promise<unknown> {
    const { artifacts, llm } = this.#session
    const { worker, scope_key } = item
    const what = `worker ${worker} on ${scope_key}`
    const end = new AbortController()
    let calls: OpenLlm | undefined
    try {
      const value = await withTimeLimit(what, signal, timeoutMs, limited => {
        const events = llmEvents(this.#session, end.signal, spans)
        calls = llm.open(this.#session, spans, events, AbortSignal.any([limited, end.signal]))
        return run(input, this.#context(item, limited, end.signal, spans, outputs, events, calls))
      })
      if (value === undefined) return undefined
      const text = canonicalJson(value)
      const name = outputName({ worker, scope: scope_key })
      outputs.set(name, await artifacts.write(name, text, OUTPUT_SCHEMA, worker, spans))
      // As it will be answered when it is asked for again.
      return JSON.parse(text)
    } finally {
      end.abort(new AnnalsError('ILLEGAL_STATE', `${what} has ended: it can't write any more`))
      // A call that nobody waited for is called off, and has its end in the log before the worker has.
      await calls?.settled()
    }
  }

  #context(
    item: WorkItem,
    signal: AbortSignal,
    ended: AbortSignal,
    spans: Required<Spans>,
    outputs: Map<string, ArtifactRef>,
    events: LaunchEvents,
    calls: OpenLlm,
  ): WorkerContext {
    const { artifacts, journal, folder } = this.#session
    const { state, traceId } = journal
    const { work_item_id: workItemId, worker, scope_key: scope, attempt } = item
    const base = { runId: state.run_id, workItemId, folder, signal, events, traceId, spanId: spans.spanId }
    return {
      ...base,
      config: state.memory.config,
      scope,
      attempt,
      artifacts: {
        ...artifacts.view,
        write: async (name, content, { schemaId = SCHEMA_DEFAULT } = {}) => {
          ended.throwIfAborted()
          signal.throwIfAborted()
          const ref = await artifacts.write(name, content, schemaId, worker, spans)
          outputs.set(name, ref)
          return ref
        },
      },
      get llm() {
        return calls.client()
      },
    }
  }
}

function outputName({ worker, scope }: Pick<WorkKey, 'worker' | 'scope'>): string {
  return `output/${artifactPart(worker)}/${artifactPart(scope)}.json`
}
