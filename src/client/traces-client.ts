import { checkWhole } from '../core/numbers.ts'
import { checkOptions, withoutUndefined } from '../core/options.ts'
import { fromJson, toJson } from '../core/value-json.ts'
import type { ChainReport } from '../engine/chain.ts'
import type { Scope } from '../engine/keys.ts'
import type { Event } from '../primitives/event.ts'
import type { IterateOptions } from '../primitives/event-reading.ts'
import type { Trace } from '../primitives/trace.ts'
import type { StoredTrace, TraceOptions, TraceTree } from '../primitives/trace-store.ts'
import { pagesOf } from './pages.ts'
import { idPath, runPath } from './paths.ts'
import { type Ask, type Transport, undefinedIf } from './transport.ts'

/** The traces of runs, with the methods of `db.traces`. */
export class TracesClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** Records a trace and returns its id. */
  async record(runId: Scope, trace: Trace, options: TraceOptions = {}): Promise<string> {
    checkOptions('record', options, ['id', 'parentId', 'tags', 'metadata'])
    const { metadata, ...rest } = options
    const json = {
      trace: toJson(withoutUndefined(trace)),
      ...rest,
      ...(metadata === undefined ? {} : { metadata: toJson(metadata) }),
    }
    const path = runPath(runId, 'traces')
    return (await this.#transport.json<{ readonly id: string }>(path, { method: 'POST', json, once: true }))
      .id
  }

  /** Records a trace as a child of another. */
  async recordChild(
    runId: Scope,
    parentId: string,
    trace: Trace,
    options: Omit<TraceOptions, 'parentId'> = {},
  ): Promise<string> {
    return this.record(runId, trace, { ...options, parentId })
  }

  /** The trace; undefined if it does not exist. */
  async get(runId: Scope, id: string): Promise<StoredTrace | undefined> {
    const path = runPath(runId, 'traces', idPath('id', id))
    const response = await this.#transport.ask(path).catch(undefinedIf('TRACE_NOT_FOUND'))
    return response === undefined ? undefined : traceOf(await this.#transport.read(response))
  }

  /** The traces of a type, by time. */
  async queryByType(runId: Scope, type: string): Promise<readonly StoredTrace[]> {
    return this.#query(runId, { type })
  }

  /** The traces with a tag, by time. */
  async queryByTag(runId: Scope, tag: string): Promise<readonly StoredTrace[]> {
    return this.#query(runId, { tag })
  }

  /** The traces from `startMs`, inclusive, to `endMs`, exclusive, which may be `Infinity`. */
  async queryByTime(runId: Scope, startMs: number, endMs: number): Promise<readonly StoredTrace[]> {
    return this.#query(runId, { from: startMs, to: endMs === Number.POSITIVE_INFINITY ? undefined : endMs })
  }

  /** The direct children of a trace. */
  async children(runId: Scope, id: string): Promise<readonly StoredTrace[]> {
    return this.#query(runId, { parentId: id })
  }

  /** The trace with all its descendants; undefined if it does not exist. */
  async tree(runId: Scope, id: string): Promise<TraceTree | undefined> {
    const path = runPath(runId, 'traces', idPath('id', id), 'tree')
    const response = await this.#transport.ask(path).catch(undefinedIf('TRACE_NOT_FOUND'))
    return response === undefined ? undefined : treeOf((await this.#transport.read(response)) as JsonTree)
  }

  /** The ids of all traces of a run. */
  async list(runId: Scope): Promise<readonly string[]> {
    return Object.freeze((await this.#query(runId, {})).map(({ id }) => id))
  }

  async #query(runId: Scope, query: NonNullable<Ask['query']>): Promise<readonly StoredTrace[]> {
    const found: StoredTrace[] = []
    const path = runPath(runId, 'traces')
    for await (const page of pagesOf<unknown>(this.#transport, path, 'traces', { query })) {
      for (const json of page) found.push(traceOf(json))
    }
    return Object.freeze(found)
  }
}

/** The runs' own logs, for reading, with methods of `db.events`. */
export class EventsClient {
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** The events in order, from number `from`, inclusive; read on demand. */
  async *iterate(runId: Scope, options: IterateOptions = {}): AsyncGenerator<Event, void, void> {
    checkOptions('iterate', options, ['from'])
    const { from = 0 } = options
    checkWhole('from', from)
    const pages = pagesOf<unknown>(this.#transport, runPath(runId, 'log'), 'events', {
      place: 'from',
      start: from,
    })
    for await (const page of pages) for (const json of page) yield fromJson<Event>(json)
  }

  /** Recomputes every hash and returns the first event that differs. */
  async verifyChain(runId: Scope): Promise<ChainReport> {
    return this.#transport.json(runPath(runId, 'log', 'verification'))
  }
}

interface JsonTree {
  readonly trace: unknown
  readonly children: readonly JsonTree[]
}

function treeOf({ trace, children }: JsonTree): TraceTree {
  return Object.freeze({ trace: traceOf(trace), children: Object.freeze(children.map(treeOf)) })
}

function traceOf(json: unknown): StoredTrace {
  return fromJson<StoredTrace>(json)
}
