import type { RunEventRecord } from './run-events.ts'

/** The place of a record or alert in the order of all runs. */
export type Position = Pick<RunEventRecord, 'persistedAt' | 'runId' | 'runSeq'>

/** Compares by `persistedAt`, then by run id, then by `runSeq`. */
export function byTime(a: Position, b: Position): number {
  if (a.persistedAt !== b.persistedAt) return a.persistedAt < b.persistedAt ? -1 : 1
  if (a.runId !== b.runId) return a.runId < b.runId ? -1 : 1
  return a.runSeq - b.runSeq
}
