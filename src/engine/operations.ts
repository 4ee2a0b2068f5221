import { type ByteString, isBytes } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { RECORD_BYTES_MAX } from '../core/value.ts'
import { isEngineTag, isLogTag } from './keys.ts'
import type { Operation, Place, Range, TreeId } from './storage.ts'

/**
 * What every engine refuses, in one place, so that all refuse the same. An
 * engine calls these before it looks at its data: a refused operation then
 * can't leave anything behind.
 */

/** Of a key or a dedupe key, at the port; the primitives allow less. */
const KEY_BYTES_MAX = 4096
const SCOPE_BYTES_MAX = 4096
/** Of one commit: all scopes, keys and values together. */
export const COMMIT_BYTES_MAX: number = 256 * 1024 * 1024
const BODY_HASH_BYTES = 32
const MEMO_BYTES_MAX = 64 * 1024
/** Longer values are not searched for chars that are no bytes: it may take milliseconds, and they are made from buffers. */
const SCANNED_BYTES_MAX = 64 * 1024
/** What an operation costs beside its bytes, at least. */
const OPERATION_BYTES = 32

export function checkOperations(operations: readonly Operation[]): void {
  let bytes = 0
  for (const operation of operations) bytes += checkOperation(operation)
  checkCommitBytes(bytes)
}

/** Refuses a malformed operation; returns what it adds to the size of a commit. */
export function checkOperation(operation: Operation): number {
  if (operation.op === 'drop') {
    checkScope(operation.scope)
    return OPERATION_BYTES + operation.scope.length
  }
  checkTree(operation)
  const { tag } = operation
  if (operation.op === 'append') {
    if (!isLogTag(tag)) throw refused(`tag ${tag} is no log: it takes puts and deletes`, tag)
    if (operation.bodyHash.length !== BODY_HASH_BYTES) {
      throw invalidArgument('bodyHash', `is ${operation.bodyHash.length} bytes long, not ${BODY_HASH_BYTES}`)
    }
    checkValue('body', operation.body, RECORD_BYTES_MAX)
    checkTime('time', operation.time)
    if (operation.feed !== undefined) checkScope(operation.feed)
    const bytes = OPERATION_BYTES + operation.scope.length + operation.body.length
    if (operation.dedupe === undefined) return bytes
    checkKey('dedupe.key', operation.dedupe.key)
    checkValue('dedupe.memo', operation.dedupe.memo ?? '', MEMO_BYTES_MAX)
    return bytes + operation.dedupe.key.length + (operation.dedupe.memo ?? '').length
  }
  if (isLogTag(tag)) throw refused(`tag ${tag} is a log: it takes appends only`, tag)
  if (isEngineTag(tag)) throw refused(`tag ${tag} belongs to the engine`, tag)
  checkKey('key', operation.key)
  const bytes = OPERATION_BYTES + operation.scope.length + operation.key.length
  if (operation.op === 'delete') return bytes
  checkValue('value', operation.value, RECORD_BYTES_MAX)
  checkTime('expiresAt', operation.expiresAt)
  checkTime('time', operation.time)
  return bytes + operation.value.length
}

export function checkCommitBytes(bytes: number): void {
  if (bytes <= COMMIT_BYTES_MAX) return
  throw new AnnalsError('INVALID_ARGUMENT', `one commit takes at most ${COMMIT_BYTES_MAX} bytes`, {
    bytes,
    bytesMax: COMMIT_BYTES_MAX,
  })
}

export function checkPlace(place: Place): void {
  checkTree(place)
  checkKey('key', place.key)
}

export function checkRange(range: Range): void {
  checkTree(range)
  checkLimit(range.limit)
}

export function checkLimit(limit: number | undefined): void {
  if (limit === undefined || (Number.isSafeInteger(limit) && limit >= 1)) return
  throw invalidArgument('limit', 'is not a positive integer', limit)
}

export function checkTree({ scope, tag }: TreeId): void {
  checkScope(scope)
  if (!Number.isInteger(tag) || tag < 1 || tag > 255) throw invalidArgument('tag', 'is not 1 to 255', tag)
}

/** The scopes that were checked last: operations come in crowds of the same, a run's own and one that runs share. */
let lastScope: ByteString | undefined
let scopeBefore: ByteString | undefined

function checkScope(scope: ByteString): void {
  if (scope === lastScope || scope === scopeBefore) return
  if (scope.length < 1 || scope.length > SCOPE_BYTES_MAX) {
    throw invalidArgument('scope', `is not 1 to ${SCOPE_BYTES_MAX} bytes long`, scope.length)
  }
  // Flat keys end a scope with it.
  if (scope.includes('\0')) throw invalidArgument('scope', 'holds a byte 0')
  checkBytes('scope', scope)
  scopeBefore = lastScope
  lastScope = scope
}

function checkValue(name: string, value: ByteString, bytesMax: number): void {
  if (value.length > bytesMax) throw invalidArgument(name, `is longer than ${bytesMax} bytes`, value.length)
  if (value.length <= SCANNED_BYTES_MAX) checkBytes(name, value)
}

function checkKey(name: string, key: ByteString): void {
  if (key.length < 1 || key.length > KEY_BYTES_MAX) {
    throw invalidArgument(name, `is not 1 to ${KEY_BYTES_MAX} bytes long`, key.length)
  }
  checkBytes(name, key)
}

/** The compiler takes any string for bytes. Text that was not encoded would lose the upper half of its chars on disk. */
function checkBytes(name: string, bytes: ByteString): void {
  if (!isBytes(bytes)) throw invalidArgument(name, 'holds a char above 255: it is text, not bytes')
}

function checkTime(name: string, time: number | undefined): void {
  if (time === undefined || (Number.isSafeInteger(time) && time >= 0)) return
  throw invalidArgument(name, 'is not a whole number of milliseconds', time)
}

function refused(message: string, tag: number): AnnalsError {
  return new AnnalsError('INVALID_OPERATION', message, { tag })
}
