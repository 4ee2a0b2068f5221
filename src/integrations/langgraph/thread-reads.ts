import {
  type Checkpoint,
  type CheckpointPendingWrite,
  type CheckpointTuple,
  maxChannelVersion,
  type SerializerProtocol,
  TASKS,
} from '@langchain/langgraph-checkpoint'
import type { Annals, Namespace } from 'annals'
import { AnnalsError } from '../../index.ts'
import { decodeCheckpoint, decodeValue, decodeWrite, type StoredCheckpoint } from './stored-checkpoint.ts'
import {
  checkpointKey,
  checkpointPrefix,
  partsOf,
  prefixOfWrite,
  valueKey,
  writesBetween,
  writesPrefix,
} from './thread-keys.ts'

/** A checkpoint in its place. */
export interface Located {
  readonly scope: Namespace
  readonly namespace: string
  readonly stored: StoredCheckpoint
}

/** The stored values and pending writes of a checkpoint. */
export interface Parts {
  readonly values: ReadonlyMap<string, Uint8Array | undefined>
  readonly writes: readonly StoredWrite[]
}

/** A pending write under its key. */
type StoredWrite = readonly [key: string, bytes: Uint8Array]

/** Checkpoints before this format keep the sends to tasks as writes of their parent. */
const FORMAT_WITH_TASKS = 4

/** Reads checkpoints. */
export class ThreadReader {
  readonly #db: Annals
  readonly #serde: SerializerProtocol

  constructor(db: Annals, serde: SerializerProtocol) {
    this.#db = db
    this.#serde = serde
  }

  /** Reads one checkpoint, the newest one without an id. */
  async checkpoint(scope: Namespace, namespace: string, id?: string): Promise<StoredCheckpoint | undefined> {
    let bytes: Uint8Array | undefined
    if (id !== undefined) bytes = await this.#db.kv.get<Uint8Array>(scope, checkpointKey(namespace, id))
    else {
      const newest = { prefix: checkpointPrefix(namespace), reverse: true, limit: 1 }
      bytes = (await this.#db.kv.entries<Uint8Array>(scope, newest))[0]?.[1]
    }
    return bytes === undefined ? undefined : decodeCheckpoint(bytes, this.#serde)
  }

  /** Reads the values and pending writes of a checkpoint, all at once. */
  async parts(scope: Namespace, namespace: string, stored: StoredCheckpoint): Promise<Parts> {
    const keys = valueKeys(namespace, stored)
    const [values, writes] = await Promise.all([
      keys.length === 0 ? [] : this.#db.kv.getMany<Uint8Array>(scope, keys),
      this.#writesOf(scope, namespace, stored.checkpoint.id),
    ])
    return { values: new Map(keys.map((key, i) => [key, values[i]])), writes }
  }

  /**
   * Reads the parts of several checkpoints. A value that several of them share is read once. `adjacent` means that no checkpoint
   * between the first and the last one of a namespace is left out, so that one range holds all their pending writes.
   */
  async partsOfMany(located: readonly Located[], adjacent: boolean): Promise<readonly Parts[]> {
    const groups = grouped(located, ({ scope, namespace }) => `${scope.run}\0${namespace}`)
    const read = new Map<Located, Parts>()
    await Promise.all(
      [...groups.values()].map(async group => {
        const { scope, namespace } = group[0]
        const keys = [...new Set(group.flatMap(({ stored }) => valueKeys(namespace, stored)))]
        const [found, writes] = await Promise.all([
          this.#db.kv.getMany<Uint8Array>(scope, keys),
          this.#writesOfGroup(group, adjacent),
        ])
        const values = new Map(keys.map((key, i) => [key, found[i]]))
        const byPrefix = grouped(writes, ([key]) => prefixOfWrite(key))
        for (const one of group) {
          const prefix = writesPrefix(namespace, one.stored.checkpoint.id)
          read.set(one, { values, writes: byPrefix.get(prefix) ?? [] })
        }
      }),
    )
    return located.map(one => read.get(one) as Parts)
  }

  /** The tuple of a checkpoint; undefined if a value is gone, because the checkpoint was deleted in the meantime. */
  async tuple({ scope, namespace, stored }: Located, parts: Parts): Promise<CheckpointTuple | undefined> {
    const { parentId, metadata, holders } = stored
    const channels = Object.keys(holders)
    const bytes = valueKeys(namespace, stored).map(key => parts.values.get(key))
    if (bytes.includes(undefined)) return undefined
    const [values, pendingWrites] = await Promise.all([
      Promise.all(bytes.map(value => decodeValue(value as Uint8Array, this.#serde))),
      this.#pendingWrites(parts.writes),
    ])
    const checkpoint: Checkpoint = {
      ...stored.checkpoint,
      channel_values: Object.fromEntries(channels.map((channel, i) => [channel, values[i]])),
    }
    const configOf = (id: string): CheckpointTuple['config'] => ({
      configurable: { thread_id: scope.run, checkpoint_ns: namespace, checkpoint_id: id },
    })
    const tuple: CheckpointTuple = { config: configOf(checkpoint.id), checkpoint, metadata, pendingWrites }
    if (parentId === undefined) return tuple
    if (checkpoint.v < FORMAT_WITH_TASKS) await this.#addSends(checkpoint, scope, namespace, parentId)
    return { ...tuple, parentConfig: configOf(parentId) }
  }

  /** Adds the sends of the parent to a checkpoint in an old format, as LangGraph's own savers do. */
  async #addSends(
    checkpoint: Checkpoint,
    scope: Namespace,
    namespace: string,
    parentId: string,
  ): Promise<void> {
    const writes = await this.#pendingWrites(await this.#writesOf(scope, namespace, parentId))
    const versions = Object.values(checkpoint.channel_versions)
    checkpoint.channel_values[TASKS] = writes
      .filter(([, channel]) => channel === TASKS)
      .map(([, , value]) => value)
    checkpoint.channel_versions[TASKS] = versions.length === 0 ? 1 : maxChannelVersion(...versions)
  }

  #writesOf(scope: Namespace, namespace: string, id: string): Promise<readonly StoredWrite[]> {
    return this.#db.kv.entries<Uint8Array>(scope, { prefix: writesPrefix(namespace, id) })
  }

  async #writesOfGroup(group: readonly Located[], adjacent: boolean): Promise<readonly StoredWrite[]> {
    const { scope, namespace } = group[0]
    const ids = group.map(({ stored }) => stored.checkpoint.id)
    if (adjacent) {
      const range = writesBetween(namespace, ids[ids.length - 1], ids[0])
      return this.#db.kv.entries<Uint8Array>(scope, range)
    }
    return (await Promise.all(ids.map(id => this.#writesOf(scope, namespace, id)))).flat()
  }

  #pendingWrites(writes: readonly StoredWrite[]): Promise<CheckpointPendingWrite[]> {
    return Promise.all(
      writes.map(async ([key, bytes]): Promise<CheckpointPendingWrite> => {
        const [, , , task] = partsOf(key)
        return [task, ...(await decodeWrite(bytes, this.#serde))]
      }),
    )
  }
}

/** The error for a checkpoint with a value that does not exist. */
export function missingValue({ scope, stored }: Located): AnnalsError {
  const { id } = stored.checkpoint
  const thread = JSON.stringify(scope.run)
  const why = 'the thread was deleted or pruned while a graph was writing to it'
  return new AnnalsError('CORRUPT', `checkpoint ${id} of thread ${thread} lacks a channel value: ${why}`, {
    threadId: scope.run,
    checkpointId: id,
  })
}

function valueKeys(namespace: string, { holders }: StoredCheckpoint): string[] {
  return Object.entries(holders).map(([channel, holder]) => valueKey(namespace, holder, channel))
}

function grouped<T>(items: readonly T[], keyOf: (item: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>()
  for (const item of items) {
    const key = keyOf(item)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [item])
    else group.push(item)
  }
  return groups
}
