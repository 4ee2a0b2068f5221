import type { Append, Appended, Delete, Place, Put, Reader, Step, UpdateOptions } from './storage.ts'

/**
 * What primitives are written against, so that each is written once: the
 * database, where every call is a transaction of its own, or one transaction.
 */
export interface Session extends Reader {
  /** Milliseconds since 1970; never before the time of a commit that a reader has seen. */
  now(): number
  /** The engine's clock as it is now, which lifetimes follow. It may be behind `now`. */
  clock(): number
  /** Blind writes, all or none; answers for the appends, in order. */
  write(operations: readonly Write[]): Promise<readonly Appended[]>
  /** One step over declared reads, without anything in between. `step` must be pure: it may run more than once. */
  update<T>(reads: readonly Place[], step: WriteStep<T>, options?: UpdateOptions): Promise<StepOutcome<T>>
  /** Deletes an entry; answers whether it was there. In a transaction that answer is no read: it is not validated. */
  remove(place: Place): Promise<boolean>
  /** Several reads as of one moment. */
  view<T>(read: (reader: Reader) => Promise<T>): Promise<T>
}

export type Write = Put | Delete | Append

export type WriteStep<T> = (
  ...found: Parameters<Step<T>>
) => ReturnType<Step<T>> & { readonly operations: readonly Write[] }

export interface StepOutcome<T> {
  readonly result: T
  /** Of the commit; in a transaction, which has not committed yet, that of the step. */
  readonly time: number
  readonly appended: readonly Appended[]
}
