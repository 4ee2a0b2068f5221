/** The parts that storage engines share, so that all engines use the same log layout and refuse the same input. */
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
export {
  checkBoundedRanges,
  checkLimit,
  checkOperations,
  checkPlace,
  checkRange,
  checkTree,
} from './engine/operations.ts'
export type * from './engine/storage.ts'
