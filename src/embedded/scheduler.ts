import { performance } from 'node:perf_hooks'

/** When things run, and how long they take: a parameter, so that tests decide. */
export interface Scheduler {
  /** Before anything else that waits. */
  soon(task: () => void): void
  /** After what waits already: a new turn of the event loop. */
  later(task: () => void): void
  /** Milliseconds from some start; never goes back. */
  now(): number
}

const resolved = Promise.resolve()

export const nodeScheduler: Scheduler = {
  // `queueMicrotask` makes an async resource for each call, which takes longer than what it is to run.
  soon: task => void resolved.then(task),
  later: task => void setImmediate(task),
  now: () => performance.now(),
}
