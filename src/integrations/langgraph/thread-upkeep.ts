import type { Annals, KeyBounds, KeyWrite, Namespace } from 'annals'
import { AnnalsError } from '../../index.ts'
import type { StoredCheckpoint } from './stored-checkpoint.ts'
import { checkpointPrefix, kindPrefix, lastPartOf, partsOf } from './thread-keys.ts'
import type { ThreadReader } from './thread-reads.ts'

/** How many keys, and bytes of values, one commit copies. */
const BATCH_KEYS = 500
const BATCH_BYTES = 4 * 2 ** 20

/**
 * Copies all checkpoints of a thread. The checkpoints themselves are read first and written last, so that each copied one has its
 * values, also if the source grows during the copy or the process dies.
 */
export async function copyKeys(db: Annals, source: Namespace, target: Namespace): Promise<void> {
  const [existing] = await db.kv.list(target, { prefix: 'c/', limit: 1 })
  if (existing !== undefined) {
    const message = `thread ${JSON.stringify(target.run)} exists: delete it before you copy another thread to it`
    throw new AnnalsError('INVALID_OPERATION', message, { threadId: target.run })
  }
  const checkpoints = await db.kv.entries(source, { prefix: 'c/' })
  for (const prefix of ['v/', 'w/', 'm/']) {
    await inBatches(db, target, puts(db.kv.iterate(source, { prefix })))
  }
  await inBatches(db, target, puts(checkpoints))
}

/**
 * Deletes the checkpoints of a namespace that are older than the newest one, except those that it needs. Checkpoints are deleted
 * before their values, so that no checkpoint without its values remains if the process dies.
 */
export async function deleteOlder(
  db: Annals,
  reader: ThreadReader,
  scope: Namespace,
  namespace: string,
): Promise<void> {
  const needed = await neededCheckpoints(reader, scope, namespace)
  if (needed.length === 0) return
  const newest = needed[0].checkpoint.id
  const kept = new Set(needed.map(({ checkpoint }) => checkpoint.id))
  const holders = new Set(
    needed.flatMap(({ holders }) => Object.entries(holders).map(([channel, id]) => `${id}\0${channel}`)),
  )
  const isOld = (id: string): boolean => id < newest && !kept.has(id)
  const remove = (bounds: KeyBounds, isDeleted: (key: string) => boolean): Promise<void> =>
    inBatches(db, scope, deletes(db.kv.iterate(scope, bounds), isDeleted))
  await remove({ prefix: checkpointPrefix(namespace) }, key => isOld(lastPartOf(key)))
  await remove({ prefix: kindPrefix('m', namespace) }, key => isOld(lastPartOf(key)))
  await remove({ prefix: kindPrefix('w', namespace) }, key => isOld(partsOf(key)[2]))
  await remove({ prefix: kindPrefix('v', namespace) }, key => {
    const [, , id, channel] = partsOf(key)
    return id < newest && !holders.has(`${id}\0${channel}`)
  })
}

/**
 * The newest checkpoint, and its ancestors up to those that hold the values of its delta channels. Such a channel's value is made
 * of the writes since then.
 */
async function neededCheckpoints(
  reader: ThreadReader,
  scope: Namespace,
  namespace: string,
): Promise<readonly StoredCheckpoint[]> {
  const needed: StoredCheckpoint[] = []
  let stored = await reader.checkpoint(scope, namespace)
  const open = new Set(Object.keys(stored?.metadata.counters_since_delta_snapshot ?? {}))
  while (stored !== undefined) {
    needed.push(stored)
    for (const channel of Object.keys(stored.holders)) open.delete(channel)
    if (open.size === 0 || stored.parentId === undefined) break
    stored = await reader.checkpoint(scope, namespace, stored.parentId)
  }
  return needed
}

type Entries = AsyncIterable<readonly [string, unknown]> | Iterable<readonly [string, unknown]>

async function* puts(entries: Entries): AsyncGenerator<KeyWrite, void, void> {
  for await (const [key, value] of entries) yield { op: 'put', key, value }
}

async function* deletes(
  entries: Entries,
  isDeleted: (key: string) => boolean,
): AsyncGenerator<KeyWrite, void, void> {
  for await (const [key] of entries) if (isDeleted(key)) yield { op: 'delete', key }
}

async function inBatches(db: Annals, scope: Namespace, writes: AsyncIterable<KeyWrite>): Promise<void> {
  let batch: KeyWrite[] = []
  let bytes = 0
  for await (const write of writes) {
    batch.push(write)
    if (write.op === 'put' && write.value instanceof Uint8Array) bytes += write.value.length
    if (batch.length < BATCH_KEYS && bytes < BATCH_BYTES) continue
    await db.kv.write(scope, batch)
    batch = []
    bytes = 0
  }
  if (batch.length > 0) await db.kv.write(scope, batch)
}
