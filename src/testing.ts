export type { ByteString } from './core/bytes.ts'
export type { Disk, DiskFile } from './disk/disk.ts'
export { type Durability, type EmbeddedOptions, openEmbedded } from './embedded/open.ts'
export type { Scheduler } from './embedded/scheduler.ts'
export type { EmbeddedStore, Recovery, StorageStats, Warn } from './embedded/store.ts'
export type { TornTail } from './embedded/wal-recovery.ts'
export { type BeginOptions, Database, type Timing, type TransactionOptions } from './engine/database.ts'
export type { Session, StepOutcome, Write, WriteStep } from './engine/session.ts'
export type * from './engine/storage.ts'
export type { ManualTransaction, Transaction } from './engine/transaction.ts'
export type * from './index.ts'
export {
  type AnnalsSuiteOptions,
  type OpenAnnals,
  type OpenAnnalsOptions,
  type OpenedAnnals,
  testAnnals,
} from './testing/annals-suite.ts'
export { type Anomaly, type AnomalyKind, checkHistory, type HistoryReport } from './testing/cycle-checker.ts'
export type { DiskCall, DiskCallKind, DiskFault, FaultError } from './testing/disk-faults.ts'
export type {
  HistoryStep,
  ListAppend,
  ListRead,
  ListScan,
  TransactionRecord,
} from './testing/history.ts'
export {
  type LedgerApi,
  type LedgerNeed,
  type LedgerSuiteOptions,
  type OpenedLedger,
  type OpenLedger,
  type OpenLedgerOptions,
  testLedger,
} from './testing/ledger-suite.ts'
export { type ListAppendOptions, runListAppend } from './testing/list-append-workload.ts'
export type { Tear } from './testing/power-cut.ts'
export { Random, seedOfRun } from './testing/random.ts'
export { ReferenceStorage } from './testing/reference-storage.ts'
export { scheduledStorage } from './testing/scheduled-storage.ts'
export { SimulatedClock } from './testing/simulated-clock.ts'
export { SimulatedDisk, type SimulatedDiskOptions } from './testing/simulated-disk.ts'
export { SimulatedScheduler } from './testing/simulated-scheduler.ts'
export { type OpenStorage, type StorageSuiteOptions, testStorage } from './testing/storage-suite.ts'
