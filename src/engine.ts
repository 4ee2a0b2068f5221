/** What a storage engine is built from, so that every engine lays out logs and refuses malformed input in the same way. */
export { type ByteString, fromBuffer, fromU64, fromUtf8, toBuffer, u64, utf8 } from './core/bytes.ts'
export { AnnalsError, type ErrorCode, type ErrorDetails } from './core/errors.ts'
export type * from './engine/capabilities.ts'
export {
  dedupeTag,
  feedTag,
  HEAD_KEY,
  headTag,
  isDedupeTag,
  isEngineTag,
  isFeedTag,
  isLogTag,
  parseStorageKey,
  storageKey,
} from './engine/keys.ts'
export {
  commitTime,
  dedupeValue,
  EMPTY_LOG,
  feedKey,
  feedValue,
  headAfter,
  headValue,
  type Linked,
  type LogEntry,
  type LogHead,
  linkAppend,
  parseDedupe,
  parseHead,
  parseLogEntry,
} from './engine/log.ts'
export { checkLimit, checkOperations, checkPlace, checkRange, checkTree } from './engine/operations.ts'
export type * from './engine/storage.ts'
