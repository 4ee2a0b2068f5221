/**
 * Long work shares the event loop by running in slices. A loop that may take long asks `isSliceOver()` now and then, and
 * awaits `nextSlice()` when it is:
 *
 *   for (const entry of entries) {
 *     if (isSliceOver()) await nextSlice()
 *     …
 *   }
 *
 * All long work of the process shares one budget, because it shares one event loop: each turn of the loop runs a single
 * slice, and those that wait take turns. So ten long calls at once hold the loop no longer than one does.
 */

/** How long a slice runs. */
const SLICE_MS = 4

/** The time at which the current slice is over; 0 between slices. */
let sliceEnd = 0
/** Resolvers of those that wait for a slice, in order. */
const waiting: (() => void)[] = []
let isTurnPlanned = false

/** In a simulation, decides when a slice is over. */
let isOverInSimulation: (() => boolean) | undefined

/**
 * Runs a simulation: `isOver` decides when a slice is over, and the next slice begins at once, without a turn of the event loop.
 * So a seed alone decides how work interleaves, whatever the time it takes.
 */
export async function simulateSlices<T>(isOver: () => boolean, simulation: () => Promise<T>): Promise<T> {
  const before = isOverInSimulation
  isOverInSimulation = isOver
  try {
    return await simulation()
  } finally {
    isOverInSimulation = before
  }
}

/** Whether the caller should let others run. Costs about as much as reading the clock. */
export function isSliceOver(): boolean {
  if (isOverInSimulation !== undefined) return isOverInSimulation()
  const now = performance.now()
  if (sliceEnd === 0) {
    sliceEnd = now + SLICE_MS
    planTurn()
  }
  return now >= sliceEnd
}

/** Resolves in a later turn of the event loop, when it is the caller's turn to run a slice. */
export function nextSlice(): Promise<void> {
  if (isOverInSimulation !== undefined) return Promise.resolve()
  return new Promise(resolve => {
    waiting.push(resolve)
    planTurn()
  })
}

/** Whether anybody waits for a slice: then work that began is not over, although nothing else is pending. */
export function hasWaitingSlices(): boolean {
  return waiting.length > 0
}

/** So few items are mapped at once, whatever the time: to let others run would take longer. */
const FEW = 128
const ITEMS_A_LOOK = 16

/** Maps a list of any length in slices. */
export async function mapInSlices<T, U>(
  list: readonly T[],
  map: (item: T, index: number) => U,
): Promise<U[]> {
  if (list.length <= FEW) return list.map(map)
  const mapped: U[] = []
  for (let i = 0; i < list.length; ) {
    // One look at the clock serves several items, since most take less than that look.
    if (isSliceOver()) await nextSlice()
    for (const end = Math.min(i + ITEMS_A_LOOK, list.length); i < end; i++) mapped.push(map(list[i], i))
  }
  return mapped
}

/** The same where an item may take long by itself: then it is mapped to a promise. */
export async function mapLargeInSlices<T, U>(
  list: readonly T[],
  map: (item: T) => U | Promise<U>,
): Promise<U[]> {
  const mapped: U[] = []
  for (const item of list) {
    if (isSliceOver()) await nextSlice()
    mapped.push(await map(item))
  }
  return mapped
}

/** So many items of a caller's list are read before the call returns. */
const GIVEN_AT_ONCE = 256

/**
 * Whether a list is so long that it is mapped in slices. A shorter one is mapped at once, so that whoever gave it may change
 * it as soon as the call returns.
 */
export function isLong(list: readonly unknown[]): boolean {
  return list.length > GIVEN_AT_ONCE
}

/** Runs work that can stop at each `yield`, in slices. `check` is asked before each further one, and throws to end the work. */
export async function runInSlices<T>(steps: Generator<void, T, void>, check?: () => void): Promise<T> {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
    if (!isSliceOver()) continue
    await nextSlice()
    check?.()
  }
}

function planTurn(): void {
  if (isTurnPlanned) return
  isTurnPlanned = true
  later(turn)
}

/** Browsers have no `setImmediate`. */
const later: (task: () => void) => void = globalThis.setImmediate ?? (task => void setTimeout(task, 0))

function turn(): void {
  isTurnPlanned = false
  const resolve = waiting.shift()
  if (resolve === undefined) {
    // A turn of the event loop has passed, so the next call begins a slice of its own.
    sliceEnd = 0
    return
  }
  sliceEnd = performance.now() + SLICE_MS
  planTurn()
  resolve()
}
