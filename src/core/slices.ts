/**
 * Long work shares the event loop by running in slices. A loop that may take long calls `isSliceOver()` now and then, and awaits
 * `nextSlice()` if it returns true:
 *
 *   for (const entry of entries) {
 *     if (isSliceOver()) await nextSlice()
 *     …
 *   }
 *
 * All long work of the process shares one budget. Each turn of the event loop runs a single slice, and the waiting calls take
 * turns. So ten long calls at once block the loop no longer than one does.
 */

/** How long a slice runs. */
const SLICE_MS = 4

/** The time at which the current slice is over; 0 between slices. */
let sliceEnd = 0
/** The resolvers of the calls that wait for a slice, in order. */
const waiting: (() => void)[] = []
let isTurnPlanned = false

/** In a simulation, decides when a slice is over. */
let isOverInSimulation: (() => boolean) | undefined

/**
 * Runs a simulation in which `isOver` decides when a slice is over, and the next slice begins without a turn of the event loop.
 * So the seed alone decides how work interleaves.
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

/** Whether the caller should pause. Costs about as much as reading the clock. */
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

/** Whether a call waits for a slice. Then work is under way, although no I/O is pending. */
export function hasWaitingSlices(): boolean {
  return waiting.length > 0
}

/** The part of a list that is mapped before the call returns. */
const AT_ONCE_ITEMS = 256
const AT_ONCE_BYTES = 128 * 1024
/** How much work is done between two looks at the clock. Most items take less time than such a look. */
const ITEMS_A_LOOK = 16
export const BYTES_A_LOOK: number = 16 * 1024

/** The number of bytes of an item; 0 if all items are small. */
type BytesOf<T, U> = (item: T, mapped: U) => number

/** The bytes of a stored entry's value. */
export function valueBytes({ value }: { readonly value: string }): number {
  return value.length
}

const SMALL = (): number => 0

/**
 * Maps a list of any length and size. Up to 256 items of up to 128 KiB together are mapped before the call returns, so that the
 * caller may change them then; the rest is mapped in slices. An item that takes long by itself may be mapped to a promise,
 * which is awaited before the next item.
 */
export function mapInSlices<T, U>(
  list: readonly T[],
  map: (item: T, index: number) => U | Promise<U>,
  bytesOf: BytesOf<T, U> = SMALL,
): U[] | Promise<U[]> {
  const mapped: U[] = []
  let bytes = 0
  for (let i = 0; i < list.length; i++) {
    if (i === AT_ONCE_ITEMS || bytes > AT_ONCE_BYTES) return mapRest(list, mapped, map, bytesOf)
    const one = map(list[i], i)
    if (one instanceof Promise) return mapRest(list, mapped, map, bytesOf, one)
    mapped.push(one)
    bytes += bytesOf(list[i], one)
  }
  return mapped
}

/** Maps the items that are left. `next` is the pending result of the next item, if it was mapped already. */
async function mapRest<T, U>(
  list: readonly T[],
  mapped: U[],
  map: (item: T, index: number) => U | Promise<U>,
  bytesOf: BytesOf<T, U>,
  next?: Promise<U>,
): Promise<U[]> {
  if (next !== undefined) mapped.push(await next)
  let items = ITEMS_A_LOOK
  let bytes = 0
  for (let i = mapped.length; i < list.length; i++) {
    if (items === ITEMS_A_LOOK || bytes > BYTES_A_LOOK) {
      if (isSliceOver()) await nextSlice()
      items = 0
      bytes = 0
    }
    const one = map(list[i], i)
    const done = one instanceof Promise ? await one : one
    mapped.push(done)
    items++
    bytes += bytesOf(list[i], done)
  }
  return mapped
}

/** Whether a list is so long or large that it is mapped in slices. */
export function isLong<T>(list: readonly T[], bytesOf: (item: T) => number): boolean {
  if (list.length > AT_ONCE_ITEMS) return true
  let bytes = 0
  for (let i = 0; i < list.length && bytes <= AT_ONCE_BYTES; i++) bytes += bytesOf(list[i])
  return bytes > AT_ONCE_BYTES
}

/** Runs a generator, which may pause at each `yield`, in slices. After each pause `check` is called, and may throw to end the work. */
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
