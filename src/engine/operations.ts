import { type ByteString, isBytes } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { RECORD_BYTES_MAX } from '../core/value.ts'
import { isEngineTag, isLogTag } from './keys.ts'
import type { BoundedRange, Operation, Place, Range, TreeId } from './storage.ts'

/**
 * The checks of operations and reads. Every engine calls them, so that all
 * engines refuse the same input. An engine checks before it touches its data,
 * so a refused operation leaves no trace.
 */

/** The longest key or dedupe key of an engine. The primitives allow less. */
const KEY_BYTES_MAX = 4096
const SCOPE_BYTES_MAX = 4096
/** The most bytes of one commit: all scopes, keys and values together. */
export const COMMIT_BYTES_MAX: number = 256 * 1024 * 1024
const BODY_HASH_BYTES = 32
const MEMO_BYTES_MAX = 64 * 1024
/**
 * The longest value that is searched for chars above 255. Longer values are always made from buffers, and searching them
 * would take milliseconds.
 */
const SCANNED_BYTES_MAX = 64 * 1024
/** The most entries that the ranges of one update may return together. An engine reads them in one step, which blocks its event loop. */
const UPDATE_ENTRIES_MAX = 10_000
/** The overhead of an operation, which counts towards the size of its commit. */
const OPERATION_BYTES = 32

/** Refuses a malformed operation with `INVALID_ARGUMENT` or `INVALID_OPERATION`, and operations too large for one commit. */
export function checkOperations(operations: readonly Operation[]): void {
  let bytes = 0
  for (const operation of operations) bytes += checkOperation(operation)
  checkCommitBytes(bytes)
}

/** Refuses a malformed operation. Returns the bytes that it adds to the size of its commit. */
export function checkOperation(operation: Operation): number {
  if (operation.op === 'drop') {
    checkScope(operation.scope)
    return OPERATION_BYTES + operation.scope.length
  }
  checkTree(operation)
  const { tag } = operation
  if (operation.op === 'append') {
    if (!isLogTag(tag)) throw refused(`cannot append: tag ${tag} is not a log`, tag)
    checkString('bodyHash', operation.bodyHash)
    if (operation.bodyHash.length !== BODY_HASH_BYTES) {
      throw invalidArgument(
        'bodyHash',
        `must be ${BODY_HASH_BYTES} bytes long, not ${operation.bodyHash.length}`,
      )
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
  if (isLogTag(tag)) throw refused(`tag ${tag} is a log, which accepts only appends`, tag)
  if (isEngineTag(tag)) throw refused(`tag ${tag} is reserved for the engine`, tag)
  checkKey('key', operation.key)
  const bytes = OPERATION_BYTES + operation.scope.length + operation.key.length
  if (operation.op === 'delete') return bytes
  checkValue('value', operation.value, RECORD_BYTES_MAX)
  checkTime('expiresAt', operation.expiresAt)
  checkTime('time', operation.time)
  return bytes + operation.value.length
}

/** Refuses a commit of more than `COMMIT_BYTES_MAX` bytes. */
export function checkCommitBytes(bytes: number): void {
  if (bytes <= COMMIT_BYTES_MAX) return
  throw new AnnalsError('INVALID_ARGUMENT', `a commit must not exceed ${COMMIT_BYTES_MAX} bytes`, {
    bytes,
    bytesMax: COMMIT_BYTES_MAX,
  })
}

/** Refuses a place with an invalid scope, tag or key. */
export function checkPlace(place: Place): void {
  checkTree(place)
  checkKey('key', place.key)
}

/** Refuses a range with an invalid scope, tag or limit. */
export function checkRange(range: Range): void {
  checkTree(range)
  checkLimit(range.limit)
}

/** Refuses ranges of an update that are malformed, have no limit, or may return more than `UPDATE_ENTRIES_MAX` entries together. */
export function checkBoundedRanges(ranges: readonly BoundedRange[]): void {
  let entries = 0
  for (const range of ranges) {
    checkRange(range)
    checkBound('from', range.from)
    checkBound('to', range.to)
    if (range.limit === undefined)
      throw invalidArgument('limit', 'is missing: a range of an update needs one')
    entries += range.limit
  }
  if (entries > UPDATE_ENTRIES_MAX) {
    const why = `must not exceed ${UPDATE_ENTRIES_MAX} entries, counting all ranges of the update`
    throw invalidArgument('limit', why, entries)
  }
}

/** Refuses a limit that is not a positive integer. */
export function checkLimit(limit: number | undefined): void {
  if (limit === undefined || (Number.isSafeInteger(limit) && limit >= 1)) return
  throw invalidArgument('limit', 'must be a positive integer', limit)
}

/** Refuses a tree with an invalid scope or tag. */
export function checkTree({ scope, tag }: TreeId): void {
  checkScope(scope)
  if (!Number.isInteger(tag) || tag < 1 || tag > 255)
    throw invalidArgument('tag', 'must be an integer from 1 to 255', tag)
}

/** The last two scopes that passed. Operations usually alternate between a run's own scope and a shared one. */
let lastScope: ByteString | undefined
let scopeBefore: ByteString | undefined

function checkScope(scope: ByteString): void {
  checkString('scope', scope)
  if (scope === lastScope || scope === scopeBefore) return
  if (scope.length < 1 || scope.length > SCOPE_BYTES_MAX) {
    throw invalidArgument('scope', `must be 1 to ${SCOPE_BYTES_MAX} bytes long`, scope.length)
  }
  // In flat keys a byte 0 ends the scope.
  if (scope.includes('\0')) throw invalidArgument('scope', 'must not contain the byte 0')
  checkBytes('scope', scope)
  scopeBefore = lastScope
  lastScope = scope
}

function checkValue(name: string, value: ByteString, bytesMax: number): void {
  checkString(name, value)
  if (value.length > bytesMax) throw invalidArgument(name, `is longer than ${bytesMax} bytes`, value.length)
  if (value.length <= SCANNED_BYTES_MAX) checkBytes(name, value)
}

function checkKey(name: string, key: ByteString): void {
  checkString(name, key)
  if (key.length < 1 || key.length > KEY_BYTES_MAX) {
    throw invalidArgument(name, `must be 1 to ${KEY_BYTES_MAX} bytes long`, key.length)
  }
  checkBytes(name, key)
}

/** Unlike a key, a bound may be empty. */
function checkBound(name: string, bound: ByteString | undefined): void {
  if (bound === undefined) return
  checkString(name, bound)
  checkBytes(name, bound)
}

/** Refuses buffers and other values that JavaScript callers may pass. A buffer has a length too, so the other checks accept it. */
function checkString(name: string, value: unknown): void {
  if (typeof value !== 'string') throw invalidArgument(name, `must be a byte string, not ${typeof value}`)
}

/**
 * Refuses text that was not encoded as bytes. The compiler accepts any string here, and on disk a char above 255 would lose
 * its upper byte.
 */
function checkBytes(name: string, bytes: ByteString): void {
  if (!isBytes(bytes)) throw invalidArgument(name, 'contains a char above 255: encode text as bytes first')
}

function checkTime(name: string, time: number | undefined): void {
  if (time === undefined || (Number.isSafeInteger(time) && time >= 0)) return
  throw invalidArgument(name, 'must be a whole number of milliseconds', time)
}

function refused(message: string, tag: number): AnnalsError {
  return new AnnalsError('INVALID_OPERATION', message, { tag })
}
