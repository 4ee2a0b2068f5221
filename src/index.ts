export { Annals, type OpenOptions, OpenTransaction, open, ScopedTransaction } from './annals.ts'
export { AnnalsError, type ErrorCode, type ErrorDetails } from './core/errors.ts'
export type { Value } from './core/value.ts'
export type { Durability } from './embedded/open.ts'
export type { Recovery, StorageStats } from './embedded/store.ts'
export type { TornTail } from './embedded/wal-recovery.ts'
export type { BeginOptions, TransactionOptions } from './engine/database.ts'
export {
  agentShared,
  appShared,
  Namespace,
  type NamespaceParts,
  namespace,
  type Scope,
  tenantShared,
} from './engine/keys.ts'
export { Kv, KvTransaction, type ListOptions, type PutOptions, type VersionedValue } from './primitives/kv.ts'
