import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { decodeStored, encodeGiven, type Value } from '../core/value.ts'
import { TAGS } from '../engine/keys.ts'
import type { Session } from '../engine/session.ts'
import type { Entry, Put } from '../engine/storage.ts'
import { checkKey } from './key-range.ts'

/** The entries of key-value storage: how values become entries, and entries values. */

export const TAG: number = TAGS.kv

/** Options of a put in `write`. */
export interface LifetimeOptions {
  /** The lifetime in milliseconds, a positive integer. After it, the key reads as absent. Unlimited by default. */
  readonly ttlMs?: number
}

/** A key with its value. */
export type KeyValue<T = Value> = readonly [key: string, value: T]

/** A value, or a promise of it if decoding takes long. */
export type Decoded<T> = T | Promise<T>

/** The put of a value that a caller passed in. A long value is encoded in slices. */
export function putOf(
  session: Session,
  scope: ByteString,
  key: string,
  value: unknown,
  { ttlMs }: LifetimeOptions,
): Put | Promise<Put> {
  const keyBytes = checkKey(key)
  const expiresAt = expiryOf(ttlMs, session.clock())
  const made = (bytes: ByteString): Put => {
    return { op: 'put', scope, tag: TAG, key: keyBytes, expiresAt, value: bytes }
  }
  const encoded = encodeGiven(value)
  return typeof encoded === 'string' ? made(encoded) : encoded.then(made)
}

/** The key and value of an entry. */
export function pairOf<T>({ key, value }: Entry): Decoded<KeyValue<T>> {
  const pairWith = (decoded: Value): KeyValue<T> => Object.freeze([fromUtf8(key), decoded as T] as const)
  const decoded = decodeStored(value)
  return decoded instanceof Promise ? decoded.then(pairWith) : pairWith(decoded)
}

/** The time at which a key with this lifetime expires; 0 for never. */
export function expiryOf(ttlMs: number | undefined, clock: number): number {
  if (ttlMs === undefined) return 0
  const ttlMax = Number.MAX_SAFE_INTEGER - clock
  if (Number.isSafeInteger(ttlMs) && ttlMs > 0 && ttlMs <= ttlMax) return clock + ttlMs
  const why =
    Number.isSafeInteger(ttlMs) && ttlMs > 0 ? `can be at most ${ttlMax} now` : 'must be a positive integer'
  throw new AnnalsError('INVALID_ARGUMENT', `ttlMs ${why}`, { name: 'ttlMs', value: ttlMs, max: ttlMax })
}
