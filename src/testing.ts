export type { ByteString } from './core/bytes.ts'
export type { ErrorCode } from './core/errors.ts'
export type * from './engine/capabilities.ts'
export type * from './engine/storage.ts'

export {
  type AnnalsSuiteOptions,
  type OpenAnnals,
  type OpenAnnalsOptions,
  type OpenedAnnals,
  testAnnals,
} from './testing/annals-suite.ts'
export {
  type LedgerApi,
  type LedgerNeed,
  type LedgerSuiteOptions,
  type OpenedLedger,
  type OpenLedger,
  type OpenLedgerOptions,
  testLedger,
} from './testing/ledger-suite.ts'
export { ReferenceStorage } from './testing/reference-storage.ts'
export { type OpenStorage, type StorageSuiteOptions, testStorage } from './testing/storage-suite.ts'
