import type { KeyBounds } from 'annals'
import { endOf, escaped, unescaped } from './key-parts.ts'

/**
 * The keys of a thread's scope. `/` separates the parts, and is escaped within them.
 *
 * | key | value |
 * |---|---|
 * | `c/<namespace>/<checkpoint>` | the checkpoint without its channel values, and its metadata |
 * | `v/<namespace>/<checkpoint>/<channel>` | the value of a channel that this checkpoint changed |
 * | `w/<namespace>/<checkpoint>/<task>/<index>` | a pending write |
 * | `m/<namespace>/<name>/<value>/<checkpoint>` | index entry of a metadata field |
 * | `epoch`, `writer` | the lease of the thread's writer |
 */

/** The metadata fields that are the same for all checkpoints of a thread or different for each: an index of them is useless. */
const NOT_INDEXED: ReadonlySet<string> = new Set(['thread_id', 'checkpoint_id', 'checkpoint_ns'])
/** A longer field is not indexed, because keys have at most 1,024 bytes. */
const INDEXED_LENGTH_MAX = 64
/** Makes indices of special writes, which are negative, sort before the others. */
const INDEX_OFFSET = 100
const INDEX_DIGITS = 6

export const EPOCH_KEY = 'epoch'
export const WRITER_KEY = 'writer'

/** The prefix of all keys of a kind in a namespace. */
export function kindPrefix(kind: 'c' | 'v' | 'w' | 'm', namespace: string): string {
  return `${kind}/${escaped(namespace)}/`
}

export function checkpointPrefix(namespace: string): string {
  return kindPrefix('c', namespace)
}

export function checkpointKey(namespace: string, id: string): string {
  return checkpointPrefix(namespace) + escaped(id)
}

export function valueKey(namespace: string, id: string, channel: string): string {
  return `v/${escaped(namespace)}/${escaped(id)}/${escaped(channel)}`
}

export function writesPrefix(namespace: string, id: string): string {
  return `w/${escaped(namespace)}/${escaped(id)}/`
}

export function writeKey(namespace: string, id: string, task: string, index: number): string {
  const digits = String(index + INDEX_OFFSET).padStart(INDEX_DIGITS, '0')
  return `${writesPrefix(namespace, id)}${escaped(task)}/${digits}`
}

/** The inverse of `writeKey` for the part that `writesPrefix` returns. */
export function prefixOfWrite(key: string): string {
  return key.slice(0, key.lastIndexOf('/', key.lastIndexOf('/') - 1) + 1)
}

/** The range of the pending writes of all checkpoints between two, both included. */
export function writesBetween(namespace: string, oldest: string, newest: string): KeyBounds {
  return { gte: writesPrefix(namespace, oldest), lt: endOf(writesPrefix(namespace, newest)) }
}

/** The prefix of a metadata field's index entries; undefined if the field is not indexed. */
export function indexPrefix(namespace: string, name: string, value: unknown): string | undefined {
  if (NOT_INDEXED.has(name) || (typeof value === 'object' && value !== null)) return undefined
  const text = JSON.stringify(value)
  if (text === undefined || name.length > INDEXED_LENGTH_MAX || text.length > INDEXED_LENGTH_MAX) {
    return undefined
  }
  return `m/${escaped(namespace)}/${escaped(name)}/${escaped(text)}/`
}

export function indexKey(prefix: string, id: string): string {
  return prefix + escaped(id)
}

/** The parts of a key, unescaped. */
export function partsOf(key: string): string[] {
  return key.split('/').map(unescaped)
}

/** The last part of a key, unescaped: a checkpoint's id in a key of a checkpoint or index entry. */
export function lastPartOf(key: string): string {
  return unescaped(key.slice(key.lastIndexOf('/') + 1))
}
