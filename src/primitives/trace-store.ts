import { type ByteString, fromUtf8, utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { checkEndTime, checkOrder, checkTime } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import { isSliceOver, mapInSlices, nextSlice, valueBytes } from '../core/slices.ts'
import type { Given } from '../core/storable.ts'
import { checkTags, checkText } from '../core/text.ts'
import { decodeStored, decodeValue, encodeGivenFields, joinFields, type Value } from '../core/value.ts'
import { type Indexing, idOfIndexKey, indexKey, indexRange, recordKey, recordsOf } from '../engine/indexes.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import { behind, pages } from '../engine/pages.ts'
import type { Session } from '../engine/session.ts'
import type { Entry, Place, Put, Range, Reader } from '../engine/storage.ts'
import { boundForm } from './bound.ts'
import { checkTrace, type GivenTrace, type Trace, type TraceOf } from './trace.ts'

const TAG = TAGS.trace
const ID_BYTES_MAX = 1024
const BY_TYPE = 'y'
const BY_TAG = 'g'
const BY_PARENT = 'p'
const BY_TIME = 't'

/** A trace as it is stored. */
export interface StoredTrace<M = Value, T extends Trace = Trace> {
  /** The id, unique in its scope. */
  readonly id: string
  /** The id of the parent; absent if there is none. */
  readonly parentId?: string
  /** The trace itself. */
  readonly trace: T
  /** When the trace was recorded, in milliseconds since 1970. */
  readonly timestamp: number
  /** Labels to find the trace by. */
  readonly tags: readonly string[]
  /** Any value that was stored with the trace; absent if there is none. */
  readonly metadata?: M
}

/** The properties of a trace that is recorded. */
export interface TraceOptions<M = Value> {
  /** An id that is new in the scope; a new id by default. */
  readonly id?: string
  /** The id of an existing trace. */
  readonly parentId?: string
  /** Labels to find the trace by; none by default. */
  readonly tags?: readonly string[]
  /** Any value to store with the trace. */
  readonly metadata?: M
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
export interface TraceTree<M = Value> {
  /** The trace at the root. */
  readonly trace: StoredTrace<M>
  /** The children, by timestamp, then id. */
  readonly children: readonly TraceTree<M>[]
}

/**
 * Structured traces of reasoning: tool calls, decisions, thoughts. They are found by type, tag, parent and time. Lists are
 * ordered by timestamp, then id. Each trace costs two index entries, one more for a parent and one for each tag, so this
 * is made for reasoning rather than for telemetry. `S` holds the parameters that come before the others: a scope, or nothing if
 * the scope is bound. `M` is the type of the metadata.
 */
export interface TracesCalls<S extends readonly unknown[], M = Value> {
  /**
   * Records a trace and returns its id. Throws `TRACE_EXISTS` if the id is taken, and `TRACE_NOT_FOUND` if the parent does
   * not exist.
   * @example
   * const id = await db.traces.record(run, { type: 'Thought', content: 'search first' }, { tags: ['plan'] })
   * const { trace } = await db.traces.get(run, id)
   * trace.content // → 'search first'
   */
  record<A, R, C, T>(
    ...args: [...S, trace: GivenTrace<A, R, C>, options?: TraceOptions<Given<M, T>>]
  ): Promise<string>

  /**
   * Records a child of another trace, and returns its id.
   * @example
   * const call = await db.traces.record(run, { type: 'ToolCall', toolName: 'search', arguments: { q: 'b-trees' } })
   * await db.traces.recordChild(run, call, { type: 'Thought', content: 'two results' })
   * const { children } = await db.traces.tree(run, call)
   * children.length // → 1
   */
  recordChild<A, R, C, T>(
    ...args: [
      ...S,
      parentId: string,
      trace: GivenTrace<A, R, C>,
      options?: Omit<TraceOptions<Given<M, T>>, 'parentId'>,
    ]
  ): Promise<string>

  /**
   * Returns the trace with this id, or undefined if there is none.
   * @example
   * await db.traces.get(run, 'nobody') // → undefined
   */
  get(...args: [...S, id: string]): Promise<StoredTrace<M> | undefined>

  /**
   * Returns the traces of one type. Custom traces have the type `Custom`.
   * @example
   * await db.traces.record(run, { type: 'Custom', traceType: 'plan', data: [1, 2] })
   * const [found] = await db.traces.queryByType(run, 'Custom')
   * found.trace.data // → [1, 2]
   */
  queryByType<K extends string>(...args: [...S, type: K]): Promise<readonly StoredTrace<M, TraceOf<K>>[]>

  /**
   * Returns the traces with this tag.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'hm' }, { id: 't1', tags: ['doubt'] })
   * const found = await db.traces.queryByTag(run, 'doubt')
   * found.map(({ id }) => id) // → ['t1']
   */
  queryByTag(...args: [...S, tag: string]): Promise<readonly StoredTrace<M>[]>

  /**
   * Returns the traces from `startMs` (inclusive) to `endMs` (exclusive), which may be `Infinity`.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'now' })
   * const found = await db.traces.queryByTime(run, Date.now() - 60_000, Date.now() + 60_000)
   * found.length // → 1
   */
  queryByTime(...args: [...S, startMs: number, endMs: number]): Promise<readonly StoredTrace<M>[]>

  /**
   * Returns the children of a trace.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'a' }, { id: 'parent' })
   * await db.traces.recordChild(run, 'parent', { type: 'Thought', content: 'b' }, { id: 'child' })
   * const found = await db.traces.children(run, 'parent')
   * found.map(({ id }) => id) // → ['child']
   */
  children(...args: [...S, id: string]): Promise<readonly StoredTrace<M>[]>

  /**
   * Returns the trace with all its descendants, or undefined if there is none.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'a' }, { id: 'root' })
   * const { trace, children } = await db.traces.tree(run, 'root')
   * trace.id // → 'root'
   * children // → []
   */
  tree(...args: [...S, id: string]): Promise<TraceTree<M> | undefined>

  /**
   * Returns the ids of all traces.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'a' }, { id: 'a' })
   * await db.traces.list(run) // → ['a']
   */
  list(...args: S): Promise<readonly string[]>

  /**
   * Returns the number of traces.
   * @example
   * await db.traces.count(run) // → 0
   */
  count(...args: S): Promise<number>

  /** @internal The matching traces after a given one, read as they are needed. */
  iterate(
    ...args: [...S, filter: TraceFilter, after?: Pick<StoredTrace, 'timestamp' | 'id'>]
  ): AsyncGenerator<StoredTrace<M>, void, void>

  /**
   * Returns the same calls, with metadata of type `T`.
   * @example
   * // In TypeScript: const traces = db.traces.of<{ model: string }>()
   * const traces = db.traces.of()
   * const id = await traces.record(run, { type: 'Thought', content: 'hm' }, { metadata: { model: 'small' } })
   * const { metadata } = await traces.get(run, id)
   * metadata.model // → 'small'
   */
  of<T>(): TracesCalls<S, T>
}

/** The traces of all scopes. Each call is its own transaction. */
export type Traces<M = Value> = TracesCalls<[scope: Scope], M>
/** The traces of one scope. In a transaction, reads see the transaction's own traces. */
export type ScopedTraces<M = Value> = TracesCalls<[], M>

/** Implements `TracesCalls`. `S` is a scope, or undefined if `scopeOf` knows it. */
export class TraceStore<S> implements TracesCalls<[scope: S]> {
  readonly #session: Session
  readonly #scopeOf: (scope: S) => ByteString

  constructor(session: Session, scopeOf: (scope: S) => ByteString) {
    this.#session = session
    this.#scopeOf = scopeOf
  }

  async record(
    scope: S,
    trace: GivenTrace<unknown, unknown, unknown>,
    options: TraceOptions<unknown> = {},
  ): Promise<string> {
    const tree = { scope: this.#scopeOf(scope), tag: TAG }
    const place = (key: ByteString): Place => ({ ...tree, key })
    checkOptions('record', options, ['id', 'parentId', 'tags', 'metadata'])
    const timestamp = this.#session.now()
    const { id = newOrderedId(timestamp), parentId, tags = [], metadata } = options
    const record = place(recordKey(checkId('id', id)))
    const parent = parentId === undefined ? [] : [place(recordKey(checkId('parentId', parentId)))]
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
    const index = indexKeysOf({ ...fields, trace })
    await this.#session.update([record, ...parent], ([known, found]) => {
      if (known !== undefined) {
        throw new AnnalsError('TRACE_EXISTS', `trace ${JSON.stringify(id)} already exists`, { id })
      }
      if (parent.length > 0 && found === undefined) {
        const message = `the parent trace ${JSON.stringify(parentId)} does not exist`
        throw new AnnalsError('TRACE_NOT_FOUND', message, { id: parentId })
      }
      const operations: Put[] = [{ op: 'put', ...record, value }]
      for (const key of index) operations.push({ op: 'put', ...place(key), value: '' })
      return { operations, result: undefined }
    })
    return id
  }

  async recordChild(
    scope: S,
    parentId: string,
    trace: GivenTrace<unknown, unknown, unknown>,
    options: Omit<TraceOptions<unknown>, 'parentId'> = {},
  ): Promise<string> {
    checkOptions('recordChild', options, ['id', 'tags', 'metadata'])
    checkId('parentId', parentId)
    return this.record(scope, trace, { ...options, parentId })
  }

  async get(scope: S, id: string): Promise<StoredTrace | undefined> {
    const entry = await this.#session.get(this.#scopeOf(scope), TAG, recordKey(checkId('id', id)))
    return entry === undefined ? undefined : readTrace(entry)
  }

  async queryByType<K extends string>(scope: S, type: K): Promise<readonly StoredTrace<Value, TraceOf<K>>[]> {
    return this.#query(this.#index(scope, BY_TYPE, checkText('type', type, { bytesMax: ID_BYTES_MAX })))
  }

  async queryByTag(scope: S, tag: string): Promise<readonly StoredTrace[]> {
    const [checked] = checkTags([tag])
    return this.#query(this.#index(scope, BY_TAG, utf8(checked)))
  }

  async queryByTime(scope: S, startMs: number, endMs: number): Promise<readonly StoredTrace[]> {
    const start = checkTime('startMs', startMs)
    const end = checkEndTime('endMs', endMs)
    checkOrder(startMs, endMs)
    return this.#query(this.#index(scope, BY_TIME, '', start, end))
  }

  async children(scope: S, id: string): Promise<readonly StoredTrace[]> {
    return this.#query(this.#index(scope, BY_PARENT, checkId('id', id)))
  }

  async tree(scope: S, id: string): Promise<TraceTree | undefined> {
    const key = recordKey(checkId('id', id))
    return this.#session.view(async reader => {
      const root = await reader.get(this.#scopeOf(scope), TAG, key)
      return root === undefined ? undefined : this.#grow(reader, scope, await readTrace(root))
    })
  }

  async list(scope: S): Promise<readonly string[]> {
    const range = this.#index(scope, BY_TIME, '')
    return this.#session.view(async reader => {
      const ids: string[] = []
      for await (const page of pages(reader, range)) {
        for (const { key } of page) ids.push(fromUtf8(idOfIndexKey(key) ?? ''))
      }
      return Object.freeze(ids)
    })
  }

  async count(scope: S): Promise<number> {
    return (await this.list(scope)).length
  }

  async *iterate(
    scope: S,
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
    const range = this.#index(scope, kind, component, start, end)
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

  of<T>(): TracesCalls<[scope: S], T> {
    return this as TracesCalls<[scope: S], unknown> as TracesCalls<[scope: S], T>
  }

  /** Goes level by level, so that a chain of ten thousand traces does not overflow the stack. */
  async #grow(reader: Reader, scope: S, root: StoredTrace): Promise<TraceTree> {
    const levels: Growing[][] = [[{ trace: root, children: [] }]]
    for (let level = levels[0]; level.length > 0; level = levels[levels.length - 1]) {
      const next: Growing[] = []
      for (const node of level) {
        for (const trace of await this.#find(reader, this.#index(scope, BY_PARENT, utf8(node.trace.id)))) {
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

  #query<T extends Trace = Trace>(range: Range): Promise<readonly StoredTrace<Value, T>[]> {
    return this.#session.view(reader => this.#find<T>(reader, range))
  }

  async #find<T extends Trace = Trace>(
    reader: Reader,
    range: Range,
  ): Promise<readonly StoredTrace<Value, T>[]> {
    const keys = await mapInSlices(await reader.scan(range), ({ key }) => key)
    return Object.freeze(await mapInSlices(await recordsOf(reader, range, keys), readTrace<T>, valueBytes))
  }

  #index(scope: S, kind: string, component: ByteString, from?: number, to?: number): Range {
    return indexRange({ scope: this.#scopeOf(scope), tag: TAG }, kind, component, from, to)
  }
}

const scoped = boundForm<ScopedTraces>(TraceStore)

/** The traces of one scope. */
export function scopedTraces(session: Session, scope: ByteString): ScopedTraces {
  return scoped(new TraceStore(session, () => scope))
}

/** @internal */
export const TRACE_INDEXES: Indexing = {
  tag: TAG,
  kinds: BY_TYPE + BY_TAG + BY_PARENT + BY_TIME,
  keysOf: record => indexKeysOf(traceOf(record)),
}

/** The fields by which a trace is found. */
type Indexed = Pick<StoredTrace, 'id' | 'parentId' | 'timestamp' | 'tags'> & {
  readonly trace: Pick<Trace, 'type'>
}

interface Growing {
  readonly trace: StoredTrace
  readonly children: Growing[]
}

function indexKeysOf({ id, parentId, trace, timestamp, tags }: Indexed): ByteString[] {
  const key = (kind: string, component: string): ByteString =>
    indexKey(kind, utf8(component), timestamp, utf8(id))
  const keys = [key(BY_TYPE, trace.type), key(BY_TIME, ''), ...tags.map(tag => key(BY_TAG, tag))]
  return parentId === undefined ? keys : [...keys, key(BY_PARENT, parentId)]
}

/** Decodes a large trace in slices. */
function readTrace<T extends Trace = Trace>({
  value,
}: Entry): StoredTrace<Value, T> | Promise<StoredTrace<Value, T>> {
  return decodeStored<StoredTrace<Value, T>>(value)
}

/** Whether all fields were encoded at once. */
function areEncoded(given: readonly [Encoding, Encoding]): given is readonly [Encoded, Encoded] {
  return !given.some(fields => fields instanceof Promise)
}

type Encoded = Record<string, ByteString>
type Encoding = Encoded | Promise<Encoded>

function traceOf({ value }: Entry): StoredTrace {
  return decodeValue<StoredTrace>(value)
}

function checkId(name: string, id: string): ByteString {
  return checkText(name, id, { bytesMax: ID_BYTES_MAX })
}
