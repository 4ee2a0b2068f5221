import type { KeyWrite, ListOptions, PutOptions, UpdateReads, Value } from '../../src/index.ts'
import {
  byBytes,
  checkWritable,
  Refusal,
  readPoint,
  readRange,
  type ScopeState,
  type Stamp,
  type View,
  wrote,
} from './scope-model.ts'
import { UPDATE_FUNCTIONS } from './update-functions.ts'

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

  getMany: (view: View, keys: readonly string[]): (Value | undefined)[] =>
    keys.map(key => find(view, key)?.value),

  put(view: View, key: string, value: Value, { ifAbsent, ttlMs }: PutOptions = {}): VersionOf {
    checkWritable(view)
    if (ifAbsent === true && find(view, key) !== undefined) throw new Refusal('VERSION_MISMATCH')
    return write(view, key, value, ttlMs)
  },

  write(view: View, operations: readonly KeyWrite<Value>[]): void {
    checkWritable(view)
    for (const operation of operations) {
      if (operation.op === 'put') write(view, operation.key, operation.value, operation.ttlMs)
      else remove(view, operation.key)
    }
  },

  delete(view: View, key: string): boolean {
    checkWritable(view)
    // This is not a read. In a transaction it deletes the key whatever other clients do with it.
    const isThere = alive(view.scope.kv.get(key), view.moment) !== undefined
    if (!isThere && view.tracker === undefined) return false
    remove(view, key)
    return isThere
  },

  list: (view: View, options: ListOptions = {}): string[] => range(view, options).map(([key]) => key),

  entries: (view: View, options: ListOptions = {}): [string, Value][] =>
    range(view, options).map(([key, { value }]) => [key, value]),

  clear(view: View, options: ListOptions = {}): number {
    checkWritable(view)
    const found = range(view, options)
    for (const [key] of found) remove(view, key)
    return found.length
  },

  update(view: View, reads: UpdateReads, change: string): unknown {
    checkWritable(view)
    const keys = (reads.keys ?? []).map(key => find(view, key)?.value)
    const ranges = (reads.ranges ?? []).map(options => kvModel.entries(view, options))
    const { puts = [], deletes = [], result } = UPDATE_FUNCTIONS[change](reads)({ keys, ranges })
    for (const { key, value, ttlMs } of puts) write(view, key, value, ttlMs)
    for (const key of deletes) remove(view, key)
    return result
  },

  iterate: (view: View, options: ListOptions = {}): [string, Value][] => kvModel.entries(view, options),
}

function write(view: View, key: string, value: Value, ttlMs: number | undefined): VersionOf {
  const expiresAt = ttlMs === undefined ? 0 : view.clock + ttlMs
  view.scope.kv.set(key, { value, stamp: view.stamp, time: view.time, expiresAt })
  wrote(view, `kv ${key}`)
  return new VersionOf(view.stamp)
}

function remove(view: View, key: string): void {
  view.scope.kv.delete(key)
  wrote(view, `kv ${key}`)
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
  { prefix = '', gt, gte, lt, lte, after, reverse = false, limit }: ListOptions,
): [string, KvRecord][] {
  const direction = reverse ? -1 : 1
  const isInside = (key: string): boolean =>
    key.startsWith(prefix) &&
    (gt === undefined || byBytes(key, gt) > 0) &&
    (gte === undefined || byBytes(key, gte) >= 0) &&
    (lt === undefined || byBytes(key, lt) < 0) &&
    (lte === undefined || byBytes(key, lte) <= 0) &&
    (after === undefined || byBytes(key, after) * direction > 0)
  return [...scope.kv]
    .filter(([key, record]) => isInside(key) && alive(record, moment) !== undefined)
    .sort(([a], [b]) => byBytes(a, b) * direction)
    .slice(0, limit)
}
