import type { Append, Appended, Delete, Place, Put, Reader, Step, UpdateOptions } from './storage.ts'

/**
 * The interface that the primitives use. The database implements it, with a
 * separate transaction for each call, and so does a transaction. Therefore each
 * primitive is written only once.
 */
export interface Session extends Reader {
  /** The time of a commit made now, in milliseconds since 1970. It is never before the time of a commit that was read. */
  now(): number
  /** The engine's clock, which decides whether an entry has expired. It may be behind `now`. */
  clock(): number
  /** Writes without reading, all operations or none. */
  write(operations: readonly Write[]): Promise<Written>
  /** Runs `step` on the declared places and ranges and writes its operations atomically. It must be pure because it may run twice. */
  update<T>(reads: readonly Place[], step: WriteStep<T>, options?: UpdateOptions): Promise<StepOutcome<T>>
  /** Deletes an entry and returns whether it existed. A transaction does not validate that answer at commit. */
  remove(place: Place): Promise<boolean>
  /** Calls `read` with a reader whose reads all see the same state. */
  view<T>(read: (reader: Reader) => Promise<T>): Promise<T>
}

/** An operation of a primitive. Only whole scopes are dropped, so `Drop` is not among them. */
export type Write = Put | Delete | Append

/** A pure function that computes operations from the entries that it read. */
export type WriteStep<T> = (
  ...found: Parameters<Step<T>>
) => ReturnType<Step<T>> & { readonly operations: readonly Write[] }

/** The outcome of operations that were applied. */
export interface Written {
  /** The version of the commit; 0 in a transaction, which has not committed yet. */
  readonly version: number
  /** The results of the appends, in order. */
  readonly appended: readonly Appended[]
}

/** The outcome of a step that was applied. */
export interface StepOutcome<T> extends Written {
  /** The result that the step returned. */
  readonly result: T
  /** The time of the commit. In a transaction, which has not committed yet, the time at which the step ran. */
  readonly time: number
}
