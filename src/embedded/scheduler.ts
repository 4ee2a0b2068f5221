/** When things run, and how long they take: a parameter, so that tests decide. */
export interface Scheduler {
  /** Before anything else that waits. */
  soon(task: () => void): void
  /** After what waits already: a new turn of the event loop. */
  later(task: () => void): void
  /** Milliseconds from some start; never goes back. */
  now(): number
}

export const nodeScheduler: Scheduler = {
  soon: queueMicrotask,
  later: task => void setImmediate(task),
  now: () => performance.now(),
}
