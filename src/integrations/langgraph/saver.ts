import type { RunnableConfig } from '@langchain/core/runnables'
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  getCheckpointId,
  type PendingWrite,
  type SerializerProtocol,
  WRITES_IDX_MAP,
} from '@langchain/langgraph-checkpoint'
import type { Annals, Namespace } from 'annals'
import { invalidArgument } from '../../core/errors.ts'
import { namespace as namespaceOf } from '../../index.ts'
import { merged, namespacesOf, newestFirst } from './listing.ts'
import { Recent } from './recent.ts'
import {
  encodeCheckpoint,
  encodeValue,
  encodeWrite,
  headOf,
  type StoredCheckpoint,
} from './stored-checkpoint.ts'
import { checkpointKey, indexKey, indexPrefix, valueKey, writeKey } from './thread-keys.ts'
import { type Located, missingValue, type Parts, ThreadReader } from './thread-reads.ts'
import { copyKeys, deleteOlder } from './thread-upkeep.ts'
import {
  LeasedWriter,
  SharedWriter,
  type ThreadLeaseOptions,
  type ThreadPut,
  type ThreadWriter,
} from './thread-writes.ts'

/** Options of `AnnalsSaver`. */
export interface AnnalsSaverOptions {
  /** The app in whose namespaces the threads are stored, `langgraph` by default. */
  readonly app?: string
  /** Serializes channel values, metadata and writes. LangGraph's `JsonPlusSerializer` by default. */
  readonly serde?: SerializerProtocol
  /** Makes this saver the only writer of each thread that it writes. By default, several savers may write to a thread. */
  readonly lease?: ThreadLeaseOptions
}

/** Options of `AnnalsSaver.prune`. */
export interface PruneOptions {
  /** `keep_latest` keeps the newest checkpoint of each namespace, which is the default. `delete` deletes the threads. */
  readonly strategy?: 'keep_latest' | 'delete'
}

const APP_DEFAULT = 'langgraph'
/** The agent of all threads' namespaces, so that the scope of a store is never taken for a thread. */
const AGENT = 'threads'
/** How many namespaces of threads a saver remembers the newest checkpoint of. */
const RECENT_MAX = 1_000
/** How many checkpoints `list` reads together. */
const CHUNK_MAX = 64
/** How often a checkpoint is read that is deleted at the same time. */
const ATTEMPTS = 3

/**
 * A LangGraph checkpointer on Annals. Each thread has a scope of its own. A channel value is stored once, with the checkpoint that
 * changed it, and later checkpoints refer to it. A checkpoint, its values and its index entries are one commit.
 */
export class AnnalsSaver extends BaseCheckpointSaver {
  readonly #db: Annals
  readonly #app: string
  readonly #reader: ThreadReader
  readonly #writer: ThreadWriter
  /** The newest known checkpoint of each namespace, so that `put` knows the values of the parent without a read. */
  readonly #recent = new Recent<StoredCheckpoint>(RECENT_MAX)

  /** Creates a checkpointer on an open store. Close the store yourself, when no graph runs any more. */
  constructor(db: Annals, options: AnnalsSaverOptions = {}) {
    super(options.serde)
    this.#db = db
    this.#app = options.app ?? APP_DEFAULT
    this.#reader = new ThreadReader(db, this.serde)
    this.#writer = options.lease === undefined ? new SharedWriter(db) : new LeasedWriter(db, options.lease)
  }

  /** Returns the checkpoint that the config names, or the newest one of its thread and namespace. */
  async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    const { thread_id, checkpoint_ns = '' } = config.configurable ?? {}
    if (thread_id === undefined) return undefined
    const scope = this.#scopeOf(thread_id)
    const id = getCheckpointId(config) || undefined
    if (id === undefined) await this.#writer.observe(scope)
    for (let attempt = 1; ; attempt++) {
      const located = await this.#read(scope, checkpoint_ns, id)
      if (located === undefined) return undefined
      const tuple = await this.#reader.tuple(located, located.parts)
      if (tuple !== undefined) return tuple
      if (attempt === ATTEMPTS) throw missingValue(located)
    }
  }

  /**
   * Iterates over checkpoints, newest first. Without a thread id it reads all threads, and without a namespace all namespaces.
   * A filter on metadata fields whose values are strings, numbers, booleans or null uses an index.
   */
  async *list(config: RunnableConfig, options: CheckpointListOptions = {}): AsyncGenerator<CheckpointTuple> {
    const { limit = Number.POSITIVE_INFINITY, before, filter = {} } = options
    if (limit <= 0) return
    const selection = {
      id: getCheckpointId(config) || undefined,
      before: before === undefined ? undefined : getCheckpointId(before) || undefined,
      filter,
      firstPage: Math.min(limit, CHUNK_MAX),
    }
    const places = await this.#placesOf(config)
    const found = merged(places.map(place => newestFirst(this.#db, this.serde, place, selection)))
    const isFiltered = Object.keys(filter).length > 0
    let left = limit
    while (left > 0) {
      const chunk = await take(found, Math.min(left, CHUNK_MAX))
      if (chunk.length === 0) return
      left -= chunk.length
      const parts = await this.#reader.partsOfMany(chunk, !isFiltered)
      for (const [i, located] of chunk.entries()) {
        const tuple = await this.#reader.tuple(located, parts[i])
        if (tuple !== undefined) yield tuple
      }
    }
  }

  /** Stores a checkpoint with the channel values that differ from its parent's, in one commit. */
  async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const { thread_id, checkpoint_ns = '', checkpoint_id: parentId } = config.configurable ?? {}
    const scope = this.#scopeOf(thread_id)
    const { id } = checkpoint
    const parent = parentId === undefined ? undefined : await this.#known(scope, checkpoint_ns, parentId)
    const isComplete = parentId !== undefined || metadata.source === 'fork'
    const holders = holdersOf(checkpoint, parent, newVersions, isComplete)
    const changed = Object.keys(holders).filter(channel => holders[channel] === id)
    const head = headOf(checkpoint, parentId, holders)
    const [typedMetadata, values] = await Promise.all([
      this.serde.dumpsTyped(metadata),
      Promise.all(
        changed.map(async (channel): Promise<ThreadPut> => {
          const value = encodeValue(await this.serde.dumpsTyped(checkpoint.channel_values[channel]))
          return { key: valueKey(checkpoint_ns, id, channel), value }
        }),
      ),
    ])
    const record = { key: checkpointKey(checkpoint_ns, id), value: encodeCheckpoint(head, typedMetadata) }
    await this.#writer.write(scope, [record, ...values, ...indexEntries(checkpoint_ns, id, metadata)])
    const { channel_values: _, ...rest } = checkpoint
    const stored = { checkpoint: structuredClone(rest), parentId, holders, metadata, head }
    this.#recent.set(recentKey(scope, checkpoint_ns), stored)
    return { configurable: { thread_id, checkpoint_ns, checkpoint_id: id } }
  }

  /** Stores the writes of a task. A write that exists is kept, except for errors, interrupts and the like, which are replaced. */
  async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string): Promise<void> {
    const { thread_id, checkpoint_ns = '', checkpoint_id } = config.configurable ?? {}
    const scope = this.#scopeOf(thread_id)
    if (checkpoint_id === undefined) throw invalidArgument('config.configurable.checkpoint_id', 'is missing')
    if (writes.length === 0) return
    const puts = writes.map(async ([channel, value], i): Promise<ThreadPut> => {
      const index = WRITES_IDX_MAP[channel] ?? i
      const key = writeKey(checkpoint_ns, checkpoint_id, taskId, index)
      return { key, value: encodeWrite(channel, await this.serde.dumpsTyped(value)), once: index >= 0 }
    })
    await this.#writer.write(scope, await Promise.all(puts))
  }

  /** Deletes all checkpoints and writes of a thread in one commit. */
  async deleteThread(threadId: string): Promise<void> {
    const scope = this.#scopeOf(threadId)
    await this.#db.drop(scope)
    this.#recent.forget(recentKey(scope, ''))
  }

  /** Deletes the threads, or all but their newest checkpoints. Do not prune a thread while a graph continues an older one. */
  async prune(threadIds: readonly string[], options: PruneOptions = {}): Promise<void> {
    const { strategy = 'keep_latest' } = options
    if (strategy !== 'keep_latest' && strategy !== 'delete') {
      throw invalidArgument('strategy', "must be 'keep_latest' or 'delete'", strategy)
    }
    for (const threadId of threadIds) {
      if (strategy === 'delete') {
        await this.deleteThread(threadId)
        continue
      }
      const scope = this.#scopeOf(threadId)
      for (const namespace of await namespacesOf(this.#db, scope)) {
        await deleteOlder(this.#db, this.#reader, scope, namespace)
      }
    }
  }

  /** Copies a thread to a new thread id. Rejects with `INVALID_OPERATION` if that thread exists. */
  async copyThread(sourceThreadId: string, targetThreadId: string): Promise<void> {
    await copyKeys(this.#db, this.#scopeOf(sourceThreadId), this.#scopeOf(targetThreadId))
  }

  /** Ends this saver's lease of a thread, so that another saver may write at once. Does nothing without the option `lease`. */
  async releaseThread(threadId: string): Promise<void> {
    await this.#writer.release(this.#scopeOf(threadId))
  }

  /** Returns the namespace in which a thread is stored. */
  namespaceOf(threadId: string): Namespace {
    return this.#scopeOf(threadId)
  }

  #scopeOf(threadId: unknown): Namespace {
    if (typeof threadId !== 'string' || threadId === '') {
      throw invalidArgument('config.configurable.thread_id', 'must be a non-empty string', threadId)
    }
    return namespaceOf({ tenant: this.#db.tenant, app: this.#app, agent: AGENT, run: threadId })
  }

  /** The threads and namespaces that a config names. */
  async #placesOf(
    config: RunnableConfig,
  ): Promise<readonly { readonly scope: Namespace; readonly namespace: string }[]> {
    const { thread_id, checkpoint_ns } = config.configurable ?? {}
    const scopes = thread_id === undefined ? await this.#threads() : [this.#scopeOf(thread_id)]
    const places = scopes.map(async scope => {
      const namespaces = checkpoint_ns === undefined ? await namespacesOf(this.#db, scope) : [checkpoint_ns]
      return namespaces.map((namespace: string) => ({ scope, namespace }))
    })
    return (await Promise.all(places)).flat()
  }

  async #threads(): Promise<readonly Namespace[]> {
    const scopes = await this.#db.scopes()
    return scopes.filter(({ app, agent }) => app === this.#app && agent === AGENT)
  }

  /**
   * Reads a checkpoint with its parts. The parts of the checkpoint that was the newest one so far are read together with it. If it
   * still is the newest one, there is nothing more to read.
   */
  async #read(
    scope: Namespace,
    namespace: string,
    id: string | undefined,
  ): Promise<(Located & { readonly parts: Parts }) | undefined> {
    const recent = this.#recent.get(recentKey(scope, namespace))
    const expected = id === undefined || id === recent?.checkpoint.id ? recent : undefined
    const [stored, early] = await Promise.all([
      this.#reader.checkpoint(scope, namespace, id),
      expected === undefined ? undefined : this.#reader.parts(scope, namespace, expected),
    ])
    if (stored === undefined) return undefined
    if (id === undefined) this.#recent.set(recentKey(scope, namespace), stored)
    const isExpected = early !== undefined && expected?.head === stored.head
    const parts = isExpected ? early : await this.#reader.parts(scope, namespace, stored)
    return { scope, namespace, stored, parts }
  }

  /** A checkpoint that becomes a parent. */
  async #known(scope: Namespace, namespace: string, id: string): Promise<StoredCheckpoint | undefined> {
    const recent = this.#recent.get(recentKey(scope, namespace))
    return recent?.checkpoint.id === id ? recent : this.#reader.checkpoint(scope, namespace, id)
  }
}

function recentKey({ run }: Namespace, namespace: string): string {
  return `${run}\0${namespace}`
}

/** Whether a channel has the same version as in the parent, and the parent has its value. */
function isShared(channel: string, checkpoint: Checkpoint, parent: StoredCheckpoint): boolean {
  if (!Object.hasOwn(parent.holders, channel)) return false
  const version = checkpoint.channel_versions[channel]
  return version !== undefined && version === parent.checkpoint.channel_versions[channel]
}

/**
 * For each channel with a value, the checkpoint that holds it. The first checkpoint of a thread has only the values of channels
 * with new versions. Other checkpoints have all values: a copy of a checkpoint has the parent of the original, and names no new
 * versions, although its values differ from the parent's.
 */
function holdersOf(
  checkpoint: Checkpoint,
  parent: StoredCheckpoint | undefined,
  newVersions: ChannelVersions,
  isComplete: boolean,
): Readonly<Record<string, string>> {
  const holders: [channel: string, id: string][] = []
  for (const channel of Object.keys(checkpoint.channel_values)) {
    const isNew = Object.hasOwn(newVersions, channel)
    if (!isNew && parent !== undefined && isShared(channel, checkpoint, parent)) {
      holders.push([channel, parent.holders[channel]])
    } else if (isNew || isComplete) holders.push([channel, checkpoint.id])
  }
  return Object.fromEntries(holders)
}

function indexEntries(namespace: string, id: string, metadata: CheckpointMetadata): readonly ThreadPut[] {
  return Object.entries(metadata).flatMap(([name, value]) => {
    const prefix = indexPrefix(namespace, name, value)
    return prefix === undefined ? [] : [{ key: indexKey(prefix, id), value: null }]
  })
}

/** The next items of an iterator, up to a number. */
async function take<T>(source: AsyncGenerator<T, void, void>, count: number): Promise<readonly T[]> {
  const taken: T[] = []
  while (taken.length < count) {
    const next = await source.next()
    if (next.done === true) break
    taken.push(next.value)
  }
  return taken
}
