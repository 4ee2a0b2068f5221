import { performance } from 'node:perf_hooks'

/** Runs tasks later and measures time. Tests replace it to control both. */
export interface Scheduler {
  /** Runs the task as a microtask, before the event loop continues. */
  soon(task: () => void): void
  /** Runs the task in a new turn of the event loop. */
  later(task: () => void): void
  /** Monotonic time in milliseconds, from an arbitrary start. */
  now(): number
}

const resolved = Promise.resolve()

export const nodeScheduler: Scheduler = {
  // `queueMicrotask` creates an async resource for each call, which takes longer than the tasks themselves.
  soon: task => void resolved.then(task),
  later: task => void setImmediate(task),
  now: () => performance.now(),
}
