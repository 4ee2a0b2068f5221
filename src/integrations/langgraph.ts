export { AnnalsSaver, type AnnalsSaverOptions, type PruneOptions } from './langgraph/saver.ts'
export type { ThreadLeaseOptions } from './langgraph/thread-writes.ts'
