export { Annals, open, openOn, type Stats } from './annals.ts'
export { type BundleReport, verifyBundle } from './bundle/bundle-verification.ts'
export type { Bundle, ImportReport } from './bundle/import.ts'
export type { CopyReport } from './copying.ts'
export type { ByteString } from './core/bytes.ts'
export { AnnalsError, type ErrorCode, type ErrorDetails } from './core/errors.ts'
export type { RetryOptions } from './core/retry.ts'
export type { Given, Storable } from './core/storable.ts'
export type { Value } from './core/value.ts'
export type {
  Capabilities,
  Durability,
  EngineInfo,
  FolderId,
  Recovery,
  StorageStats,
  TornTail,
} from './engine/capabilities.ts'
export type { ChainReport } from './engine/chain.ts'
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
export type { StoppableOptions } from './engine/stoppable.ts'
export type {
  Append,
  Appended,
  BoundedRange,
  Commit,
  CommitOutcome,
  Committed,
  Conflict,
  Delete,
  Drop,
  Entry,
  Operation,
  Patience,
  Place,
  PointRead,
  Put,
  Range,
  RangeRead,
  Reader,
  ScopeRange,
  Snapshot,
  Step,
  Storage,
  TreeId,
  Updated,
  UpdateOptions,
} from './engine/storage.ts'
export type { AlertItem } from './ledger/alert-subscriptions.ts'
export type { AuditQuery } from './ledger/audit.ts'
export {
  type EventIdRegistry,
  FileRegistry,
  type LedgerRegistry,
  openFileRegistry,
} from './ledger/event-id-registry.ts'
export {
  deriveIdempotencyKey,
  type IdempotencyFields,
  idempotencyPreimage,
} from './ledger/idempotency-key.ts'
export type { LeaseOptions } from './ledger/lease.ts'
export { Ledger } from './ledger/ledger.ts'
export type {
  AppendOptions,
  FetchAllOptions,
  FetchOptions,
  IterateEventsOptions,
  SubscribeAlertsOptions,
  SubscribeAllOptions,
  SubscribeOptions,
} from './ledger/ledger-options.ts'
export type { LatencyStats, LedgerStats, ProjectorStats } from './ledger/metrics.ts'
export type { Position as AuditPosition } from './ledger/position.ts'
export {
  createProducer,
  type Payload as EventPayload,
  Producer,
  type ProducerOptions,
} from './ledger/producer.ts'
export { reduce } from './ledger/reduce.ts'
export type {
  AppendResult,
  KnownRunEventType,
  LedgerAlert,
  RunEventRecord,
  RunEventType,
  RunEventWrite,
  RunHeading,
  RunSnapshot,
  RunStateStatus,
  RunStateStore,
  StepAttempt,
  StepSnapshot,
  StepStatus,
} from './ledger/run-events.ts'
export type { FeedItem } from './ledger/subscriptions.ts'
export type { RunVerification } from './ledger/verification.ts'
export type { LedgerOptions, OpenOnOptions, OpenOptions } from './open-options.ts'
export type { AnyEvents, Event, EventOf, EventType, GivenPayload } from './primitives/event.ts'
export type {
  AppendBatchOptions,
  AppendEventOptions,
  Events,
  EventsCalls,
  GivenEvents,
  LiveEvents,
  LiveEventsCalls,
  NewEvent,
  ReadByTypeOptions,
  ScopedEvents,
} from './primitives/event-log.ts'
export type { IterateOptions, TailOptions } from './primitives/event-reading.ts'
export type { EventReceipt } from './primitives/event-receipt.ts'
export type { KeyValue, LifetimeOptions } from './primitives/key-entry.ts'
export type { KeyBounds, ListOptions } from './primitives/key-range.ts'
export type {
  UpdateChanges,
  UpdateFound,
  UpdateFunction,
  UpdateRange,
  UpdateReads,
} from './primitives/key-update.ts'
export type {
  KeyWrite,
  Kv,
  KvCalls,
  LiveKvCalls,
  PutOptions,
  RunKv,
  ScopedKv,
  VersionedValue,
} from './primitives/kv.ts'
export type {
  EventNameOf,
  Guard,
  MachineDefinition,
  MachineTransition,
  StateOf,
} from './primitives/machine-definition.ts'
export type { Run, RunStatus, Tombstone } from './primitives/run.ts'
export type { CreateRunOptions, EnsureRunOptions } from './primitives/run-creation.ts'
export { type DeleteRunOptions, Runs } from './primitives/run-index.ts'
export type { RunQuery } from './primitives/run-query.ts'
export type {
  Cell,
  CellState,
  Cells,
  CellsCalls,
  ScopedCells,
  Transition,
  Transitioned,
} from './primitives/state-cell.ts'
export type {
  MachineState,
  MachineStep,
  Machines,
  MachinesCalls,
  ScopedMachines,
  StoredDefinition,
} from './primitives/state-machine.ts'
export type {
  CustomTrace,
  Decision,
  ErrorTrace,
  GivenTrace,
  Query,
  Thought,
  ToolCall,
  Trace,
  TraceOf,
} from './primitives/trace.ts'
export type {
  ScopedTraces,
  StoredTrace,
  TraceOptions,
  Traces,
  TracesCalls,
  TraceTree,
} from './primitives/trace-store.ts'
export { type RunStats, TransactionRuns } from './primitives/transaction-runs.ts'
export type { KeyChange, WatchOptions } from './primitives/watching.ts'
export type { ScopesOptions } from './scopes.ts'
export {
  type OpenTenantTransaction,
  type OpenTransaction,
  RunHandle,
  type ScopedCalls,
  type ScopedTransaction,
  type TenantTransaction,
  type TransactionEnd,
} from './transactions.ts'
export type { IndexFault, IndexReport } from './upkeep.ts'
