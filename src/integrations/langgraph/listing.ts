import { isDeepStrictEqual } from 'node:util'
import type { CheckpointMetadata, SerializerProtocol } from '@langchain/langgraph-checkpoint'
import type { Annals, ListOptions, Namespace } from 'annals'
import { endOf } from './key-parts.ts'
import { decodeCheckpoint } from './stored-checkpoint.ts'
import { checkpointKey, checkpointPrefix, indexKey, indexPrefix, lastPartOf, partsOf } from './thread-keys.ts'
import type { Located } from './thread-reads.ts'

/** Selects checkpoints of one namespace of a thread. */
export interface Selection {
  /** Only the checkpoint with this id. */
  readonly id: string | undefined
  /** Only checkpoints before this one. */
  readonly before: string | undefined
  /** Only checkpoints whose metadata have these fields. */
  readonly filter: Readonly<Record<string, unknown>>
  /** How many checkpoints the first page has. */
  readonly firstPage: number
}

const PAGE_MAX = 256
const PAGE_GROWTH = 4

/** The namespaces of a thread that have checkpoints. It reads one key for each, and skips the others. */
export async function namespacesOf(db: Annals, scope: Namespace): Promise<readonly string[]> {
  const found: string[] = []
  let bounds: ListOptions = {}
  for (;;) {
    const [key] = await db.kv.list(scope, { prefix: 'c/', limit: 1, ...bounds })
    if (key === undefined) return found
    const [, namespace] = partsOf(key)
    found.push(namespace)
    bounds = { gte: endOf(checkpointPrefix(namespace)) }
  }
}

/**
 * Iterates over checkpoints, newest first, without their values. A filter with an indexed field reads only the checkpoints that
 * have it.
 */
export async function* newestFirst(
  db: Annals,
  serde: SerializerProtocol,
  at: { readonly scope: Namespace; readonly namespace: string },
  selection: Selection,
): AsyncGenerator<Located, void, void> {
  const { scope, namespace } = at
  const { filter } = selection
  const index = bestIndex(namespace, filter)
  const prefix = index ?? checkpointPrefix(namespace)
  let limit = selection.firstPage
  let range: ListOptions = { prefix, reverse: true, ...boundsOf(prefix, selection) }
  for (;;) {
    const page = await readPage({ ...range, limit })
    for (const { bytes } of page) {
      // The index entry of a checkpoint that was deleted in the meantime.
      if (bytes === undefined) continue
      const stored = await decodeCheckpoint(bytes, serde)
      if (hasFields(stored.metadata, filter)) yield { scope, namespace, stored }
    }
    if (page.length < limit) return
    range = { ...range, after: page[page.length - 1].key }
    limit = Math.min(limit * PAGE_GROWTH, PAGE_MAX)
  }

  async function readPage(
    options: ListOptions,
  ): Promise<readonly { readonly key: string; readonly bytes: Uint8Array | undefined }[]> {
    if (index === undefined) {
      const entries = await db.kv.entries<Uint8Array>(scope, options)
      return entries.map(([key, bytes]) => ({ key, bytes }))
    }
    const keys = await db.kv.list(scope, options)
    const records = keys.map(key => checkpointKey(namespace, lastPartOf(key)))
    const found = await db.kv.getMany<Uint8Array>(scope, records)
    return keys.map((key, i) => ({ key, bytes: found[i] }))
  }
}

/** Merges checkpoints of several threads or namespaces, each newest first, into one sequence, newest first. */
export async function* merged(
  sources: readonly AsyncGenerator<Located, void, void>[],
): AsyncGenerator<Located, void, void> {
  if (sources.length === 1) {
    yield* sources[0]
    return
  }
  const heads = await Promise.all(sources.map(source => source.next()))
  for (;;) {
    let newest: number | undefined
    let newestId = ''
    for (const [i, head] of heads.entries()) {
      if (head.done === true) continue
      const { id } = head.value.stored.checkpoint
      if (newest === undefined || id > newestId) {
        newest = i
        newestId = id
      }
    }
    if (newest === undefined) return
    const head = heads[newest]
    if (head.done !== true) yield head.value
    heads[newest] = await sources[newest].next()
  }
}

/** The prefix of the index entries to read; undefined if no field of the filter is indexed. */
function bestIndex(namespace: string, filter: Readonly<Record<string, unknown>>): string | undefined {
  // Half of a thread's checkpoints can have the same source, so any other field selects fewer.
  const names = Object.keys(filter).sort((a, b) => Number(a === 'source') - Number(b === 'source'))
  for (const name of names) {
    const prefix = indexPrefix(namespace, name, filter[name])
    if (prefix !== undefined) return prefix
  }
  return undefined
}

function boundsOf(prefix: string, { id, before }: Selection): ListOptions {
  const bounds = id === undefined ? {} : { gte: indexKey(prefix, id), lte: indexKey(prefix, id) }
  if (before === undefined) return bounds
  const end = indexKey(prefix, before)
  return id !== undefined && id < before ? bounds : { gte: bounds.gte ?? prefix, lt: end }
}

function hasFields(metadata: CheckpointMetadata, filter: Readonly<Record<string, unknown>>): boolean {
  const fields = new Map(Object.entries(metadata))
  return Object.entries(filter).every(([name, value]) => isDeepStrictEqual(fields.get(name), value))
}
