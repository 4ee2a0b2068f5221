import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import { pause } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { artifactPart } from './artifacts.ts'
import type { AnyWorkOptions, WorkerContext } from './context.ts'
import type { WorkerDefinition } from './definition.ts'
import type { ArtifactRef, LaunchFailure, WorkItem } from './events.ts'
import type { Spans } from './journal.ts'
import {
  failureOf,
  failuresOf,
  itemsOf,
  lastFinished,
  NO_SCOPE,
  nextAttempt,
  type WorkKey,
} from './work-items.ts'
import { CANCELLED, type CodeTools, observed, runCode, type Workbench } from './workbench.ts'

const ATTEMPTS_MAX = 3
const BACKOFF = { firstMs: 100, maxMs: 30_000 }
/** The name of a worker's input among the inputs of its work item. No artifact has this name. */
const GIVEN = '$input'
const OUTPUT_SCHEMA = 'urn:annals:launch:worker-output:1'
const SCHEMA_DEFAULT = 'application/octet-stream'

/** How a node asks for work. */
export interface WorkMode {
  /** The span of the node. */
  readonly parentSpanId: string
  /** Aborts when nobody waits for the result any more. */
  readonly signal: AbortSignal
  /** Runs the worker even if the work is recorded as finished. A queued item is still used. */
  readonly isFresh?: boolean
}

/**
 * Runs workers. A work item is queued, then running, then finished or failed.
 * After a failure that may pass, the next attempt is queued. Finished work
 * with the same inputs is answered from its record.
 */
export class WorkerRuns {
  readonly #bench: Workbench
  /** The work in progress by its key. Two callers that ask for the same work share it. */
  readonly #underWay = new Map<string, Promise<unknown>>()

  constructor(bench: Workbench) {
    this.#bench = bench
  }

  /** Resolves with the worker's result, recorded or new. Rejects with the failure of its last attempt. */
  run(worker: string, options: AnyWorkOptions, mode: WorkMode): Promise<unknown> {
    const { definition, key } = this.#check(worker, options)
    const name = canonicalJson(key)
    const known = this.#underWay.get(name)
    if (known !== undefined) return known
    const running = this.#run(definition, key, options.input, mode).finally(() => this.#underWay.delete(name))
    this.#underWay.set(name, running)
    return running
  }

  /** Resolves when no worker is running any more. */
  async settle(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay.values())
  }

  #check(
    worker: string,
    { scope = NO_SCOPE, input, inputs = [] }: AnyWorkOptions,
  ): { definition: WorkerDefinition<unknown, unknown>; key: WorkKey } {
    const { launch, artifacts } = this.#bench
    const definition = launch.workers.get(worker)
    if (definition === undefined) {
      throw new AnnalsError('INVALID_ARGUMENT', `the launch has no worker ${String(worker)}`, { worker })
    }
    if (typeof scope !== 'string' || scope === '' || !scope.isWellFormed()) {
      throw new AnnalsError('INVALID_ARGUMENT', 'scope must be a non-empty string', { scope })
    }
    const given = input === undefined ? [] : [{ name: GIVEN, sha256: sha256Hex(canonicalJson(input)) }]
    const refs = [...given, ...inputs.map(name => artifacts.refOf(name))]
    return { definition, key: { worker, scope_key: scope, inputs: refs } }
  }

  async #run(
    definition: WorkerDefinition<unknown, unknown>,
    key: WorkKey,
    input: unknown,
    { parentSpanId, signal, isFresh = false }: WorkMode,
  ): Promise<unknown> {
    const { slots, journal } = this.#bench
    const { attemptsMax = ATTEMPTS_MAX, backoffMs: firstMs = BACKOFF.firstMs } = definition
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
        // The slots can close in the moment in which one becomes free. Nothing may start then.
        if (slots.isClosed) continue
        const answer = await this.#attempt(definition, item, input, spans, signal)
        if ('value' in answer) return answer.value
        const failures = failuresOf(itemsOf(journal.state, key).slice(before))
        if (!answer.failure.retryable || failures >= attemptsMax) throw answer.cause
        release()
        await pause(backoffMs(failures - 1, { ...BACKOFF, firstMs }), { signal })
        signal.throwIfAborted()
      } finally {
        release()
      }
    }
  }

  /** The recorded result; undefined unless the work is finished and all its outputs are intact. */
  #finished(key: WorkKey): { readonly value: unknown } | undefined {
    const { artifacts, journal } = this.#bench
    const item = lastFinished(journal.state, key)
    if (item === undefined || !item.outputs.every(({ name }) => artifacts.isIntact(name))) return undefined
    const output = item.outputs.find(({ name }) => name === outputName(key))
    return { value: output === undefined ? undefined : artifacts.readJson(output.name) }
  }

  async #queued(key: WorkKey, spans: Spans): Promise<WorkItem> {
    const { journal } = this.#bench
    const waiting = itemsOf(journal.state, key).find(({ status }) => status === 'queued')
    if (waiting !== undefined) return waiting
    const next = nextAttempt(journal.state, key)
    await journal.append('WORK_ITEM_QUEUED', next, spans)
    return journal.state.work_items.findLast(item => item.work_item_id === next.work_item_id) as WorkItem
  }

  async #attempt(
    definition: WorkerDefinition<unknown, unknown>,
    item: WorkItem,
    input: unknown,
    spans: Required<Spans>,
    signal: AbortSignal,
  ): Promise<{ readonly value: unknown } | { readonly failure: LaunchFailure; readonly cause: unknown }> {
    const { journal } = this.#bench
    const { work_item_id, worker } = item
    return observed(this.#bench, 'worker', { name: worker, id: work_item_id, ...spans }, async fail => {
      await journal.append('WORK_ITEM_STARTED', { work_item_id }, spans)
      const outputs = new Map<string, ArtifactRef>()
      try {
        const value = await this.#execute(definition, item, input, spans, outputs, signal)
        await journal.append('WORK_ITEM_FINISHED', { work_item_id, outputs: [...outputs.values()] }, spans)
        return { value }
      } catch (cause) {
        const failure = signal.aborted
          ? { code: CANCELLED, message: 'the work was cancelled', retryable: false }
          : failureOf(cause)
        await journal.append('WORK_ITEM_FAILED', { work_item_id, error: failure }, spans)
        fail(failure)
        return { failure, cause }
      }
    })
  }

  async #execute(
    { run, timeoutMs }: WorkerDefinition<unknown, unknown>,
    item: WorkItem,
    input: unknown,
    spans: Required<Spans>,
    outputs: Map<string, ArtifactRef>,
    signal: AbortSignal,
  ): Promise<unknown> {
    const { worker, scope_key } = item
    const what = `worker ${worker} on ${scope_key}`
    const value = await runCode(this.#bench, what, { spans, signal, timeoutMs }, tools =>
      run(input, this.#context(item, tools, spans, outputs)),
    )
    if (value === undefined) return undefined
    const text = canonicalJson(value)
    const name = outputName(item)
    outputs.set(name, await this.#bench.artifacts.write(name, text, OUTPUT_SCHEMA, worker, spans))
    // Parsed, so that this answer is the same as a later one from the record.
    return JSON.parse(text)
  }

  #context(
    { work_item_id, worker, scope_key, attempt }: WorkItem,
    { signal, ended, events, models }: CodeTools,
    spans: Required<Spans>,
    outputs: Map<string, ArtifactRef>,
  ): WorkerContext {
    const { artifacts, journal, folder } = this.#bench
    const { state, traceId } = journal
    return {
      runId: state.run_id,
      config: state.memory.config,
      workItemId: work_item_id,
      scope: scope_key,
      attempt,
      folder,
      signal,
      events,
      traceId,
      spanId: spans.spanId,
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
        return models.client()
      },
    }
  }
}

function outputName({ worker, scope_key }: Pick<WorkKey, 'worker' | 'scope_key'>): string {
  return `output/${artifactPart(worker)}/${artifactPart(scope_key)}.json`
}
