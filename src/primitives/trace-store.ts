import { type ByteString, fromUtf8, utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { checkEndTime, checkOrder, checkTime } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import { isSliceOver, mapInSlices, nextSlice, valueBytes } from '../core/slices.ts'
import { checkTags, checkText } from '../core/text.ts'
import { decodeStored, decodeValue, encodeGivenFields, joinFields, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { type Indexing, idOfIndexKey, indexKey, indexRange, recordKey, recordsOf } from '../engine/indexes.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import { behind, pages } from '../engine/pages.ts'
import type { Session } from '../engine/session.ts'
import type { Entry, Place, Put, Range, Reader } from '../engine/storage.ts'
import { checkTrace, type Trace } from './trace.ts'

const TAG = TAGS.trace
const ID_BYTES_MAX = 1024
const BY_TYPE = 'y'
const BY_TAG = 'g'
const BY_PARENT = 'p'
const BY_TIME = 't'

/** A trace as it is stored. */
export interface StoredTrace {
  /** The id, unique in its scope. */
  readonly id: string
  /** The id of the parent; absent if there is none. */
  readonly parentId?: string
  /** The trace itself. */
  readonly trace: Trace
  /** When the trace was recorded, in milliseconds since 1970. */
  readonly timestamp: number
  /** Labels to find the trace by. */
  readonly tags: readonly string[]
  /** Any value that was stored with the trace; absent if there is none. */
  readonly metadata?: Value
}

/** The properties of a trace that is recorded. */
export interface TraceOptions {
  /** An id that is new in the scope; a new id by default. */
  readonly id?: string
  /** The id of an existing trace. */
  readonly parentId?: string
  /** Labels to find the trace by; none by default. */
  readonly tags?: readonly string[]
  /** Any value to store with the trace. */
  readonly metadata?: Value
}

/** @internal Conditions for a list of traces. A trace has to meet all of them. */
export interface TraceFilter {
  readonly type?: string
  readonly tag?: string
  readonly parentId?: string
  /** Inclusive. */
  readonly from?: number
  /** Exclusive. */
  readonly to?: number
}

/** A trace with all its descendants. */
export interface TraceTree {
  /** The trace at the root. */
  readonly trace: StoredTrace
  /** The children, by timestamp, then id. */
  readonly children: readonly TraceTree[]
}

/**
 * Structured traces of reasoning: tool calls, decisions, thoughts. They are found by type, tag, parent and time. Lists are
 * ordered by timestamp, then id. Each trace costs two index entries, one more for a parent and one for each tag, so this
 * is made for reasoning rather than for telemetry.
 */
export class Traces {
  readonly #database: Database
  readonly #scopeOf: (scope: Scope) => ByteString

  /** @internal Use `open`. */
  constructor(database: Database, scopeOf: (scope: Scope) => ByteString) {
    this.#database = database
    this.#scopeOf = scopeOf
  }

  /**
   * Records a trace and returns its id. Throws `TRACE_EXISTS` if the id is taken, and `TRACE_NOT_FOUND` if the parent does
   * not exist.
   * @example
   * const id = await db.traces.record(run, { type: 'Thought', content: 'search first' }, { tags: ['plan'] })
   * const { trace } = await db.traces.get(run, id)
   * trace.content // → 'search first'
   */
  async record(scope: Scope, trace: Trace, options: TraceOptions = {}): Promise<string> {
    return this.#at(scope).record(trace, options)
  }

  /**
   * Records a child of another trace, and returns its id.
   * @example
   * const call = await db.traces.record(run, { type: 'ToolCall', toolName: 'search', arguments: { q: 'b-trees' } })
   * await db.traces.recordChild(run, call, { type: 'Thought', content: 'two results' })
   * const { children } = await db.traces.tree(run, call)
   * children.length // → 1
   */
  async recordChild(
    scope: Scope,
    parentId: string,
    trace: Trace,
    options: Omit<TraceOptions, 'parentId'> = {},
  ): Promise<string> {
    return this.#at(scope).recordChild(parentId, trace, options)
  }

  /**
   * Returns the trace with this id, or undefined if there is none.
   * @example
   * await db.traces.get(run, 'nobody') // → undefined
   */
  async get(scope: Scope, id: string): Promise<StoredTrace | undefined> {
    return this.#at(scope).get(id)
  }

  /**
   * Returns the traces of one type. Custom traces have the type `Custom`.
   * @example
   * await db.traces.record(run, { type: 'Custom', traceType: 'plan', data: [1, 2] })
   * const [found] = await db.traces.queryByType(run, 'Custom')
   * found.trace.data // → [1, 2]
   */
  async queryByType(scope: Scope, type: string): Promise<readonly StoredTrace[]> {
    return this.#at(scope).queryByType(type)
  }

  /**
   * Returns the traces with this tag.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'hm' }, { id: 't1', tags: ['doubt'] })
   * const found = await db.traces.queryByTag(run, 'doubt')
   * found.map(({ id }) => id) // → ['t1']
   */
  async queryByTag(scope: Scope, tag: string): Promise<readonly StoredTrace[]> {
    return this.#at(scope).queryByTag(tag)
  }

  /**
   * Returns the traces from `startMs` (inclusive) to `endMs` (exclusive), which may be `Infinity`.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'now' })
   * const found = await db.traces.queryByTime(run, Date.now() - 60_000, Date.now() + 60_000)
   * found.length // → 1
   */
  async queryByTime(scope: Scope, startMs: number, endMs: number): Promise<readonly StoredTrace[]> {
    return this.#at(scope).queryByTime(startMs, endMs)
  }

  /**
   * Returns the children of a trace.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'a' }, { id: 'parent' })
   * await db.traces.recordChild(run, 'parent', { type: 'Thought', content: 'b' }, { id: 'child' })
   * const found = await db.traces.children(run, 'parent')
   * found.map(({ id }) => id) // → ['child']
   */
  async children(scope: Scope, id: string): Promise<readonly StoredTrace[]> {
    return this.#at(scope).children(id)
  }

  /**
   * Returns the trace with all its descendants, or undefined if there is none.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'a' }, { id: 'root' })
   * const { trace, children } = await db.traces.tree(run, 'root')
   * trace.id // → 'root'
   * children // → []
   */
  async tree(scope: Scope, id: string): Promise<TraceTree | undefined> {
    return this.#at(scope).tree(id)
  }

  /**
   * Returns the ids of all traces.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'a' }, { id: 'a' })
   * await db.traces.list(run) // → ['a']
   */
  async list(scope: Scope): Promise<readonly string[]> {
    return this.#at(scope).list()
  }

  /**
   * Returns the number of traces.
   * @example
   * await db.traces.count(run) // → 0
   */
  async count(scope: Scope): Promise<number> {
    return this.#at(scope).count()
  }

  /** @internal The matching traces after a given one, read as they are needed. */
  iterate(
    scope: Scope,
    filter: TraceFilter,
    after?: Pick<StoredTrace, 'timestamp' | 'id'>,
  ): AsyncGenerator<StoredTrace, void, void> {
    return this.#at(scope).iterate(filter, after)
  }

  #at(scope: Scope): ScopedTraces {
    return new ScopedTraces(this.#database, this.#scopeOf(scope))
  }
}

/** The traces of one scope. In a transaction, reads see the transaction's own traces. */
export class ScopedTraces {
  readonly #session: Session
  readonly #scope: ByteString

  /** @internal Use `transaction` or `run`. */
  constructor(session: Session, scope: ByteString) {
    this.#session = session
    this.#scope = scope
  }

  /**
   * Records a trace and returns its id. Throws `TRACE_EXISTS` if the id is taken, and `TRACE_NOT_FOUND` if the parent is
   * missing.
   */
  async record(trace: Trace, options: TraceOptions = {}): Promise<string> {
    checkOptions('record', options, ['id', 'parentId', 'tags', 'metadata'])
    const timestamp = this.#session.now()
    const { id = newOrderedId(timestamp), parentId, tags = [], metadata } = options
    const record = this.#place(recordKey(checkId('id', id)))
    const parent = parentId === undefined ? [] : [this.#place(recordKey(checkId('parentId', parentId)))]
    const checked = checkTrace(trace)
    const fields = {
      id,
      ...(parentId === undefined ? {} : { parentId }),
      timestamp,
      tags: checkTags(tags),
      ...(metadata === undefined ? {} : { metadata }),
    }
    const given = [encodeGivenFields(fields), encodeGivenFields(checked)] as const
    const [around, within] = areEncoded(given) ? given : await Promise.all(given)
    const value = joinFields({ ...around, trace: joinFields(within) })
    const index = indexKeysOf({ ...fields, trace: checked as unknown as Trace })
    await this.#session.update([record, ...parent], ([known, found]) => {
      if (known !== undefined) {
        throw new AnnalsError('TRACE_EXISTS', `trace ${JSON.stringify(id)} already exists`, { id })
      }
      if (parent.length > 0 && found === undefined) {
        const message = `the parent trace ${JSON.stringify(parentId)} does not exist`
        throw new AnnalsError('TRACE_NOT_FOUND', message, { id: parentId })
      }
      const operations: Put[] = [{ op: 'put', ...record, value }]
      for (const key of index) operations.push({ op: 'put', ...this.#place(key), value: '' })
      return { operations, result: undefined }
    })
    return id
  }

  /** Records a child of another trace, and returns its id. */
  async recordChild(
    parentId: string,
    trace: Trace,
    options: Omit<TraceOptions, 'parentId'> = {},
  ): Promise<string> {
    checkOptions('recordChild', options, ['id', 'tags', 'metadata'])
    checkId('parentId', parentId)
    return this.record(trace, { ...options, parentId })
  }

  /** Returns the trace with this id, or undefined if there is none. */
  async get(id: string): Promise<StoredTrace | undefined> {
    const { scope, tag, key } = this.#place(recordKey(checkId('id', id)))
    const entry = await this.#session.get(scope, tag, key)
    return entry === undefined ? undefined : readTrace(entry)
  }

  /** Returns the traces of one type, by timestamp, then id. Custom traces have the type `Custom`. */
  async queryByType(type: string): Promise<readonly StoredTrace[]> {
    return this.#query(this.#index(BY_TYPE, checkText('type', type, { bytesMax: ID_BYTES_MAX })))
  }

  /** Returns the traces with this tag, by timestamp, then id. */
  async queryByTag(tag: string): Promise<readonly StoredTrace[]> {
    const [checked] = checkTags([tag])
    return this.#query(this.#index(BY_TAG, utf8(checked)))
  }

  /** Returns the traces from `startMs` (inclusive) to `endMs` (exclusive), which may be `Infinity`. */
  async queryByTime(startMs: number, endMs: number): Promise<readonly StoredTrace[]> {
    const start = checkTime('startMs', startMs)
    const end = checkEndTime('endMs', endMs)
    checkOrder(startMs, endMs)
    return this.#query(this.#index(BY_TIME, '', start, end))
  }

  /** Returns the direct children of a trace, by timestamp, then id. */
  async children(id: string): Promise<readonly StoredTrace[]> {
    return this.#query(this.#index(BY_PARENT, checkId('id', id)))
  }

  /** Returns the trace with all its descendants, or undefined if there is none. */
  async tree(id: string): Promise<TraceTree | undefined> {
    const key = recordKey(checkId('id', id))
    return this.#session.view(async reader => {
      const root = await reader.get(this.#scope, TAG, key)
      return root === undefined ? undefined : this.#grow(reader, await readTrace(root))
    })
  }

  /** Returns the ids of all traces, by timestamp, then id. */
  async list(): Promise<readonly string[]> {
    return this.#session.view(async reader => {
      const ids: string[] = []
      for await (const page of pages(reader, this.#index(BY_TIME, ''))) {
        for (const { key } of page) ids.push(fromUtf8(idOfIndexKey(key) ?? ''))
      }
      return Object.freeze(ids)
    })
  }

  /** Returns the number of traces. It reads the whole index by time. */
  async count(): Promise<number> {
    return (await this.list()).length
  }

  /** @internal */
  async *iterate(
    filter: TraceFilter,
    after?: Pick<StoredTrace, 'timestamp' | 'id'>,
  ): AsyncGenerator<StoredTrace, void, void> {
    const { type, tag, parentId, from = 0, to = Number.POSITIVE_INFINITY } = filter
    const start = checkTime('from', from)
    const end = checkEndTime('to', to)
    checkOrder(start, end ?? Number.POSITIVE_INFINITY)
    // Reads the index that most likely leads to the fewest traces.
    const [kind, component] =
      parentId !== undefined
        ? [BY_PARENT, checkId('parentId', parentId)]
        : tag !== undefined
          ? [BY_TAG, utf8(checkTags([tag])[0])]
          : type !== undefined
            ? [BY_TYPE, checkText('type', type, { bytesMax: ID_BYTES_MAX })]
            : [BY_TIME, '']
    const range = this.#index(kind, component, start, end)
    const rest =
      after === undefined
        ? range
        : behind(range, indexKey(kind, component, checkTime('after', after.timestamp), utf8(after.id)))
    for await (const page of pages(this.#session, rest)) {
      const keys = page.map(({ key }) => key)
      for (const record of await recordsOf(this.#session, range, keys)) {
        if (isSliceOver()) await nextSlice()
        const trace = await readTrace(record)
        const isOfType = type === undefined || trace.trace.type === type
        if (isOfType && (tag === undefined || trace.tags.includes(tag))) yield trace
      }
    }
  }

  /** Goes level by level, so that a chain of ten thousand traces does not overflow the stack. */
  async #grow(reader: Reader, root: StoredTrace): Promise<TraceTree> {
    const levels: Growing[][] = [[{ trace: root, children: [] }]]
    for (let level = levels[0]; level.length > 0; level = levels[levels.length - 1]) {
      const next: Growing[] = []
      for (const node of level) {
        for (const trace of await this.#find(reader, this.#index(BY_PARENT, utf8(node.trace.id)))) {
          const child: Growing = { trace, children: [] }
          node.children.push(child)
          next.push(child)
        }
        Object.freeze(node.children)
        Object.freeze(node)
      }
      levels.push(next)
    }
    return levels[0][0]
  }

  #query(range: Range): Promise<readonly StoredTrace[]> {
    return this.#session.view(reader => this.#find(reader, range))
  }

  async #find(reader: Reader, range: Range): Promise<readonly StoredTrace[]> {
    const keys = await mapInSlices(await reader.scan(range), ({ key }) => key)
    return Object.freeze(await mapInSlices(await recordsOf(reader, range, keys), readTrace, valueBytes))
  }

  #index(kind: string, component: ByteString, from?: number, to?: number): Range {
    return indexRange({ scope: this.#scope, tag: TAG }, kind, component, from, to)
  }

  #place(key: ByteString): Place {
    return { scope: this.#scope, tag: TAG, key }
  }
}

/** @internal */
export const TRACE_INDEXES: Indexing = {
  tag: TAG,
  kinds: BY_TYPE + BY_TAG + BY_PARENT + BY_TIME,
  keysOf: record => indexKeysOf(traceOf(record)),
}

interface Growing {
  readonly trace: StoredTrace
  readonly children: Growing[]
}

function indexKeysOf({ id, parentId, trace, timestamp, tags }: StoredTrace): ByteString[] {
  const key = (kind: string, component: string): ByteString =>
    indexKey(kind, utf8(component), timestamp, utf8(id))
  const keys = [key(BY_TYPE, trace.type), key(BY_TIME, ''), ...tags.map(tag => key(BY_TAG, tag))]
  return parentId === undefined ? keys : [...keys, key(BY_PARENT, parentId)]
}

/** Decodes a large trace in slices. */
function readTrace({ value }: Entry): StoredTrace | Promise<StoredTrace> {
  return decodeStored(value) as unknown as StoredTrace | Promise<StoredTrace>
}

/** Whether all fields were encoded at once. */
function areEncoded(given: readonly [Encoding, Encoding]): given is readonly [Encoded, Encoded] {
  return !given.some(fields => fields instanceof Promise)
}

type Encoded = Record<string, ByteString>
type Encoding = Encoded | Promise<Encoded>

function traceOf({ value }: Entry): StoredTrace {
  return decodeValue(value) as unknown as StoredTrace
}

function checkId(name: string, id: string): ByteString {
  return checkText(name, id, { bytesMax: ID_BYTES_MAX })
}
