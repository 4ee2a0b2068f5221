export { AnnalsSaver, type AnnalsSaverOptions, type PruneOptions } from './langgraph/saver.ts'
export { AnnalsStore, type AnnalsStoreOptions } from './langgraph/store.ts'
export type { ThreadLeaseOptions } from './langgraph/thread-writes.ts'
