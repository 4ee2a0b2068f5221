import type { ListOptions, Value } from '../../src/index.ts'
import {
  byBytes,
  checkWritable,
  readPoint,
  readRange,
  type ScopeState,
  type Stamp,
  type View,
  wrote,
} from './scope-model.ts'

export interface KvRecord {
  readonly value: Value
  readonly stamp: Stamp
  readonly time: number
  readonly expiresAt: number
}

/**
 * The version of an entry as the stamp of its commit. The engine chooses the numbers of versions, and the model knows
 * only their order.
 */
export class VersionOf {
  readonly stamp: Stamp

  constructor(stamp: Stamp) {
    this.stamp = stamp
  }
}

export const kvModel = {
  get: (view: View, key: string): Value | undefined => find(view, key)?.value,

  getVersioned(view: View, key: string): unknown {
    const record = find(view, key)
    if (record === undefined) return undefined
    return { value: record.value, version: new VersionOf(record.stamp), updatedAt: record.time }
  },

  exists: (view: View, key: string): boolean => find(view, key) !== undefined,

  put(view: View, key: string, value: Value, options: { ttlMs?: number } = {}): void {
    checkWritable(view)
    const expiresAt = options.ttlMs === undefined ? 0 : view.clock + options.ttlMs
    view.scope.kv.set(key, { value, stamp: view.stamp, time: view.time, expiresAt })
    wrote(view, `kv ${key}`)
  },

  delete(view: View, key: string): boolean {
    checkWritable(view)
    // This is not a read. In a transaction it deletes the key whatever other clients do with it.
    const isThere = alive(view.scope.kv.get(key), view.moment) !== undefined
    if (!isThere && view.tracker === undefined) return false
    view.scope.kv.delete(key)
    wrote(view, `kv ${key}`)
    return isThere
  },

  list: (view: View, options: ListOptions = {}): string[] => range(view, options).map(([key]) => key),

  entries: (view: View, options: ListOptions = {}): [string, Value][] =>
    range(view, options).map(([key, { value }]) => [key, value]),
}

function find(view: View, key: string): KvRecord | undefined {
  readPoint(view, `kv ${key}`, (scope, moment) => alive(scope.kv.get(key), moment)?.stamp ?? 0)
  return alive(view.scope.kv.get(key), view.moment)
}

function alive(record: KvRecord | undefined, moment: number): KvRecord | undefined {
  return record === undefined || (record.expiresAt !== 0 && record.expiresAt <= moment) ? undefined : record
}

function range(view: View, options: ListOptions): [string, KvRecord][] {
  const { limit } = options
  const mark = (found: [string, KvRecord][]): string =>
    found.map(([key, { stamp }]) => `${key}@${stamp}`).join()
  const own = [...(view.tracker?.written ?? [])].some(id => id.startsWith('kv '))
  // If the transaction has written keys in the range, the engine reads past the limit, in pages.
  if (limit !== undefined && own) {
    readRange(
      view,
      (scope, moment) => mark(inRange(scope, moment, { ...options, limit: Number.MAX_SAFE_INTEGER })),
      false,
    )
  } else readRange(view, (scope, moment) => mark(inRange(scope, moment, options)))
  return inRange(view.scope, view.moment, options)
}

function inRange(
  scope: ScopeState,
  moment: number,
  { prefix = '', after, limit }: ListOptions,
): [string, KvRecord][] {
  return [...scope.kv]
    .filter(([key, record]) => key.startsWith(prefix) && alive(record, moment) !== undefined)
    .filter(([key]) => after === undefined || byBytes(key, after) > 0)
    .sort(([a], [b]) => byBytes(a, b))
    .slice(0, limit)
}
