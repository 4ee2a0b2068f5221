import type { RunKv, UpdateRange } from 'annals'
import type { WorkflowRunStatus } from 'openworkflow/internal'
import { deadlineKey, dueKey, RUNS, runKey, statusKey } from './keys.ts'
import type { Json, StoredRun, StoredStep } from './records.ts'

/** All that is stored. */
export type Stored = StoredRun | StoredStep | { readonly [name: string]: Json } | boolean

/** The keys that a step writes. */
export interface Changes {
  readonly puts: readonly { readonly key: string; readonly value: Stored }[]
  readonly deletes: readonly string[]
}

/** Lets a step change runs. An update has to read something of each range, so it reads one entry. */
export const RUN_RANGE: UpdateRange = { prefix: RUNS, limit: 1 }

/** The statuses of runs that have not ended. */
export function isActive(status: WorkflowRunStatus): boolean {
  return status === 'pending' || status === 'running'
}

/** Whether the worker has claimed the run, and nobody has claimed or ended it since. */
export function isOwned(run: StoredRun | undefined, workerId: string): run is StoredRun {
  return run !== undefined && run.status === 'running' && run.workerId === workerId
}

/** Writes the run and its entries in the indexes. */
export function runChanges(before: StoredRun | undefined, after: StoredRun): Changes {
  const puts: { key: string; value: Stored }[] = [{ key: runKey(after.id), value: after }]
  const deletes: string[] = []
  const dueBefore = before !== undefined && isActive(before.status) ? dueKey(before) : undefined
  const due = isActive(after.status) ? dueKey(after) : undefined
  if (dueBefore !== undefined && dueBefore !== due) deletes.push(dueBefore)
  if (due !== undefined) puts.push({ key: due, value: after })
  if (before?.status !== after.status) {
    if (before !== undefined) deletes.push(statusKey(before))
    puts.push({ key: statusKey(after), value: true })
  }
  if (after.deadlineAt !== null) {
    const key = deadlineKey(after.id, after.deadlineAt)
    if (before === undefined) puts.push({ key, value: { id: after.id, deadlineAt: after.deadlineAt } })
    else if (dueBefore !== undefined && due === undefined) deletes.push(key)
  }
  return { puts, deletes }
}

/** The run after one of its waiting step attempts has got its signal or the result of its child. */
export function woken(run: StoredRun, attemptId: string, now: number): StoredRun {
  const arrived = run.arrived.includes(attemptId) ? run.arrived : [...run.arrived, attemptId]
  if (run.workerId !== null) return { ...run, arrived }
  return { ...run, arrived, availableAt: Math.min(run.availableAt ?? now, now), updatedAt: now }
}

export function joined(...all: readonly Changes[]): Changes {
  return { puts: all.flatMap(({ puts }) => puts), deletes: all.flatMap(({ deletes }) => deletes) }
}

/** The entries that an update has read. */
export interface Found {
  /** The value of a key. If the update has not declared the key, it runs again with it. */
  get<T extends Stored>(key: string): T | undefined
  /** The entries of a range, by its number. */
  range<T extends Stored>(number: number): readonly (readonly [key: string, value: T])[]
}

/** Thrown by a step that needs a key which its update has not declared. Nothing is written then. */
class UndeclaredKey extends Error {
  readonly key: string
  constructor(key: string) {
    super(`the update has not declared the key ${key}`)
    this.key = key
  }
}

/**
 * Runs a step on keys and ranges in one commit. A step may find out from a value which other keys it needs, for example those of
 * a parent run. Then the update runs again with them declared.
 */
export async function update<R>(
  kv: RunKv,
  reads: { readonly keys?: readonly string[]; readonly ranges?: readonly UpdateRange[] },
  step: (found: Found) => Partial<Changes> & { readonly result: R },
): Promise<R> {
  const keys = new Set(reads.keys)
  const { ranges = [] } = reads
  for (;;) {
    try {
      const declared = [...keys]
      return await kv.update<R, Stored>({ keys: declared, ranges }, found => {
        const values = new Map(declared.map((key, i) => [key, found.keys[i]]))
        return step({
          get<T extends Stored>(key: string) {
            if (!keys.has(key)) throw new UndeclaredKey(key)
            return values.get(key) as T | undefined
          },
          range<T extends Stored>(number: number) {
            return found.ranges[number] as readonly (readonly [string, T])[]
          },
        })
      })
    } catch (error) {
      if (!(error instanceof UndeclaredKey)) throw error
      keys.add(error.key)
    }
  }
}
