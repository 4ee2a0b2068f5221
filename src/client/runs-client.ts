import { AnnalsError } from '../core/errors.ts'
import { checkLimit } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import type { Value } from '../core/value.ts'
import { fromJson, toJson } from '../core/value-json.ts'
import type { Run, RunStatus, Tombstone } from '../primitives/run.ts'
import type { CreateRunOptions, DeleteRunOptions, RunStats } from '../primitives/run-index.ts'
import type { RunQuery } from '../primitives/run-query.ts'
import { all, pagesOf } from './pages.ts'
import { runPath } from './paths.ts'
import type { Ask, Transport } from './transport.ts'

/** A page of runs has at most so many. */
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

/** The runs of a server, with the methods that `db.runs` has. */
export class RunsClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  async create(options: CreateRunOptions = {}): Promise<Run> {
    checkOptions('create', options, ['runId', 'parentRun', 'tags', 'metadata'])
    const { metadata, ...rest } = options
    const json = metadata === undefined ? rest : { ...rest, metadata: toJson(metadata) }
    return this.#run('/v1/runs', { method: 'POST', json, once: true })
  }

  /** The run, or undefined. */
  async get(runId: string): Promise<Run | undefined> {
    try {
      return await this.#run(runPath(runId))
    } catch (error) {
      if (error instanceof AnnalsError && error.code === 'RUN_NOT_FOUND') return undefined
      throw error
    }
  }

  async updateStatus(runId: string, status: RunStatus): Promise<Run> {
    return this.#setStatus(runId, { status })
  }

  async complete(runId: string): Promise<Run> {
    return this.#setStatus(runId, { status: 'Completed' })
  }

  async fail(runId: string, error: string): Promise<Run> {
    return this.#setStatus(runId, { status: 'Failed', error })
  }

  async cancel(runId: string): Promise<Run> {
    return this.#setStatus(runId, { status: 'Cancelled' })
  }

  async pause(runId: string): Promise<Run> {
    return this.#setStatus(runId, { status: 'Paused' })
  }

  async resume(runId: string): Promise<Run> {
    return this.#setStatus(runId, { status: 'Active' })
  }

  /** Hides the run from `query` and `list`. */
  async archive(runId: string): Promise<Run> {
    return this.#run(runPath(runId, 'archive'), { method: 'POST', once: true })
  }

  async addTags(runId: string, tags: readonly string[]): Promise<Run> {
    return this.#run(runPath(runId, 'tags'), { method: 'POST', json: { tags } })
  }

  /** Replaces the metadata. */
  async updateMetadata(runId: string, metadata: Value): Promise<Run> {
    return this.#run(runPath(runId, 'metadata'), { method: 'PUT', json: toJson(metadata) })
  }

  /** Runs, newest first. */
  async query(query: RunQuery = {}): Promise<readonly Run[]> {
    checkOptions('query', query, QUERY)
    const { limit, after, tags, createdBefore, ...rest } = query
    let left = checkLimit(limit) ?? Number.POSITIVE_INFINITY
    const until = createdBefore === Number.POSITIVE_INFINITY ? undefined : createdBefore
    const pages = pagesOf<unknown>(this.#transport, '/v1/runs', 'runs', {
      limit: limit === undefined || limit > PAGE_MAX ? undefined : limit,
      place: 'after',
      start: after,
      query: { ...rest, tag: tags, createdBefore: until },
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

  /** The runs whose parent this is, newest first; also archived ones. */
  async children(runId: string): Promise<readonly Run[]> {
    return this.query({ parentRun: runId, includeArchived: true })
  }

  /** Removes the run and all its data, for good; a tombstone stays. */
  async delete(runId: string, options: DeleteRunOptions = {}): Promise<Tombstone> {
    checkOptions('delete', options, ['purgeLedger', 'reason'])
    return this.#transport.json(runPath(runId), { method: 'DELETE', query: { ...options }, once: true })
  }

  /** What is left of deleted runs, newest first. */
  async tombstones(): Promise<readonly Tombstone[]> {
    return all(
      pagesOf<Tombstone>(this.#transport, '/v1/tombstones', 'tombstones', {
        limit: undefined,
        place: 'after',
      }),
    )
  }

  /** How many runs there are in each status. */
  async stats(): Promise<RunStats> {
    const { runs } = await this.#transport.json<{ readonly runs: RunStats }>('/v1/stats')
    return runs
  }

  async #setStatus(
    runId: string,
    json: { readonly status: RunStatus; readonly error?: string },
  ): Promise<Run> {
    return this.#run(runPath(runId, 'status'), { method: 'PUT', json, once: true })
  }

  async #run(path: string, ask?: Ask): Promise<Run> {
    const response = await this.#transport.ask(path, ask)
    return runOf(await response.json())
  }
}

function runOf(json: unknown): Run {
  return fromJson(json) as unknown as Run
}
