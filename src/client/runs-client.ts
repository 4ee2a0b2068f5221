import { checkLimit } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import type { Given } from '../core/storable.ts'
import type { Value } from '../core/value.ts'
import { fromJson, toJson } from '../core/value-json.ts'
import type { Scope } from '../engine/keys.ts'
import type { Run, RunStatus, Tombstone } from '../primitives/run.ts'
import type { CreateRunOptions, EnsureRunOptions } from '../primitives/run-creation.ts'
import type { DeleteRunOptions } from '../primitives/run-index.ts'
import type { RunQuery } from '../primitives/run-query.ts'
import type { RunStats } from '../primitives/transaction-runs.ts'
import { all, pagesOf } from './pages.ts'
import { runPath } from './paths.ts'
import { type Ask, type Transport, undefinedIf } from './transport.ts'

/** The largest page of runs. */
const PAGE_MAX = 1_000

const QUERY: readonly (keyof RunQuery)[] = [
  'status',
  'tags',
  'createdAfter',
  'createdBefore',
  'parentRun',
  'includeArchived',
  'limit',
  'after',
]

/** The run index of a server, with the methods of `db.runs`. */
export class RunsClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** Creates a run. `RUN_EXISTS` if its id is taken. */
  async create<T = Value>(options: CreateRunOptions<Given<Value, T>> = {}): Promise<Run<T>> {
    checkOptions('create', options, ['runId', 'parentRun', 'tags', 'metadata'])
    const { runId, ...rest } = options
    const json = { ...(await this.#bodyOf(rest)), ...partsOf(runId) }
    return this.#run('/v1/runs', { method: 'POST', json, once: true })
  }

  /** Returns the run, and creates it if it does not exist. */
  async ensure<T = Value>(runId: Scope, options: EnsureRunOptions<Given<Value, T>> = {}): Promise<Run<T>> {
    checkOptions('ensure', options, ['parentRun', 'tags', 'metadata'])
    return this.#run(runPath(runId), { method: 'PUT', json: await this.#bodyOf(options) })
  }

  /** The run, or undefined. */
  async get(runId: Scope): Promise<Run | undefined> {
    return this.#run(runPath(runId)).catch(undefinedIf('RUN_NOT_FOUND'))
  }

  /** Changes the status. `INVALID_TRANSITION` if the transition is not allowed. */
  async updateStatus(runId: Scope, status: RunStatus): Promise<Run> {
    return this.#setStatus(runId, { status })
  }

  /** Changes the status to `Completed`. */
  async complete(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, { status: 'Completed' })
  }

  /** Changes the status to `Failed` and stores the error. */
  async fail(runId: Scope, error: string): Promise<Run> {
    return this.#setStatus(runId, { status: 'Failed', error })
  }

  /** Changes the status to `Cancelled`. */
  async cancel(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, { status: 'Cancelled' })
  }

  /** Changes the status to `Paused`. */
  async pause(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, { status: 'Paused' })
  }

  /** Changes the status of a paused run to `Active`. */
  async resume(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, { status: 'Active' })
  }

  /** Changes the status to `Archived`, which hides the run from `query` and `list`. */
  async archive(runId: Scope): Promise<Run> {
    return this.#run(runPath(runId, 'archive'), { method: 'POST', once: true })
  }

  /** Adds tags to the run. */
  async addTags(runId: Scope, tags: readonly string[]): Promise<Run> {
    return this.#run(runPath(runId, 'tags'), { method: 'POST', json: { tags } })
  }

  /** Replaces the metadata. */
  async updateMetadata<T = Value>(runId: Scope, metadata: Given<Value, T>): Promise<Run<T>> {
    return this.#run(runPath(runId, 'metadata'), { method: 'PUT', json: toJson(metadata) })
  }

  /** The runs that match all conditions, newest first. */
  async query(query: RunQuery = {}): Promise<readonly Run[]> {
    checkOptions('query', query, QUERY)
    const { limit, after: last, tags, createdBefore, parentRun: parent, ...rest } = query
    const after = last === undefined ? undefined : await this.#idOf(last)
    const parentRun = parent === undefined ? undefined : await this.#parentIn(parent)
    if (parent !== undefined && parentRun === undefined) return Object.freeze([])
    let left = checkLimit(limit) ?? Number.POSITIVE_INFINITY
    const until = createdBefore === Number.POSITIVE_INFINITY ? undefined : createdBefore
    const pages = pagesOf<unknown>(this.#transport, '/v1/runs', 'runs', {
      limit: limit === undefined || limit > PAGE_MAX ? undefined : limit,
      start: after,
      query: { ...rest, parentRun, tag: tags, createdBefore: until },
    })
    const found: Run[] = []
    for await (const page of pages) {
      for (const json of page.slice(0, left)) found.push(runOf(json))
      left -= page.length
      if (left <= 0) break
    }
    return Object.freeze(found)
  }

  /** The ids of all runs, newest first. */
  async list(options: { readonly includeArchived?: boolean } = {}): Promise<readonly string[]> {
    checkOptions('list', options, ['includeArchived'])
    return Object.freeze((await this.query(options)).map(({ runId }) => runId))
  }

  /** The children of a run, newest first, including archived ones. */
  async children(runId: Scope): Promise<readonly Run[]> {
    return this.query({ parentRun: runId, includeArchived: true })
  }

  /** Deletes the run and all its data permanently. A tombstone remains. */
  async delete(runId: Scope, options: DeleteRunOptions = {}): Promise<Tombstone> {
    checkOptions('delete', options, ['purgeLedger', 'reason'])
    return this.#transport.json(runPath(runId), { method: 'DELETE', query: { ...options }, once: true })
  }

  /** The tombstones of deleted runs, newest first. */
  async tombstones(): Promise<readonly Tombstone[]> {
    return all(pagesOf<Tombstone>(this.#transport, '/v1/tombstones', 'tombstones'))
  }

  /** The number of runs in each status. */
  async stats(): Promise<RunStats> {
    const { runs } = await this.#transport.json<{ readonly runs: RunStats }>('/v1/stats')
    return runs
  }

  async #bodyOf({ parentRun, metadata, ...rest }: EnsureRunOptions<unknown>): Promise<object> {
    return {
      ...rest,
      ...(parentRun === undefined ? {} : { parentRun: await this.#idOf(parentRun) }),
      ...(metadata === undefined ? {} : { metadata: toJson(metadata) }),
    }
  }

  /** The id of a run that is given by id or namespace. `RUN_NOT_FOUND` if the namespace has no run. */
  async #idOf(run: Scope): Promise<string> {
    return typeof run === 'string' ? run : (await this.#run(runPath(run))).runId
  }

  /** The id of a parent, which may have been deleted; undefined if it is in another namespace. */
  async #parentIn(run: Scope): Promise<string | undefined> {
    if (typeof run === 'string') return run
    const isThere = (await this.get(run)) !== undefined || (await this.get(run.run)) === undefined
    return isThere ? run.run : undefined
  }

  async #setStatus(
    runId: Scope,
    json: { readonly status: RunStatus; readonly error?: string },
  ): Promise<Run> {
    return this.#run(runPath(runId, 'status'), { method: 'PUT', json, once: true })
  }

  async #run<M = Value>(path: string, ask?: Ask): Promise<Run<M>> {
    const response = await this.#transport.ask(path, ask)
    return runOf(await this.#transport.read(response))
  }
}

/** The parts of a namespace, as fields of the request. */
function partsOf(run: Scope | undefined): object {
  if (run === undefined) return {}
  if (typeof run !== 'object' || run === null) return { runId: run }
  const { tenant, app, agent, run: runId } = run
  return { runId, tenant, app, agent }
}

function runOf<M = Value>(json: unknown): Run<M> {
  return fromJson<Run<M>>(json)
}
