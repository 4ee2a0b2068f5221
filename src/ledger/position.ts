import type { RunEventRecord } from './run-events.ts'

/** Where a record, or what is said of it, stands among those of all runs. */
export type Position = Pick<RunEventRecord, 'persistedAt' | 'runId' | 'runSeq'>

/** By when it was persisted, then by run, then by its number there. */
export function byTime(a: Position, b: Position): number {
  if (a.persistedAt !== b.persistedAt) return a.persistedAt < b.persistedAt ? -1 : 1
  if (a.runId !== b.runId) return a.runId < b.runId ? -1 : 1
  return a.runSeq - b.runSeq
}
