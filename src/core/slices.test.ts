import { performance } from 'node:perf_hooks'
import { expect, test } from 'vitest'
import { hasWaitingSlices, isSliceOver, mapInSlices, nextSlice } from './slices.ts'

/** Works for this many milliseconds in slices. */
async function work(ms: number): Promise<void> {
  let left = ms
  while (left > 0) {
    if (isSliceOver()) await nextSlice()
    spin(0.5)
    left -= 0.5
  }
}

function spin(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

/** The number of turns of the event loop until `done` resolves. */
async function turnsUntil(done: Promise<unknown>): Promise<number> {
  let turns = 0
  let isDone = false
  void done.then(() => {
    isDone = true
  })
  while (!isDone) {
    await new Promise(resolve => setImmediate(resolve))
    turns++
  }
  return turns
}

test('short work runs without waiting for a turn of the event loop', async () => {
  await new Promise(resolve => setImmediate(resolve))
  let isDone = false
  const done = Promise.resolve(mapInSlices([1, 2, 3], item => item + 1)).then(mapped => {
    isDone = true
    return mapped
  })
  for (let i = 0; i < 5; i++) await Promise.resolve()
  expect(isDone).toBe(true)
  expect(await done).toEqual([2, 3, 4])
})

test('long work lets others run between its slices', async () => {
  expect(await turnsUntil(work(60))).toBeGreaterThanOrEqual(10)
})

test('ten long calls at once share one slice a turn', async () => {
  const all = Promise.all(Array.from({ length: 10 }, () => work(12)))
  // 120 ms in slices of 4 ms. If each call had its own budget, about three turns would be enough.
  expect(await turnsUntil(all)).toBeGreaterThanOrEqual(20)
})

test('waiting calls take turns', async () => {
  const order: string[] = []
  const worker = async (name: string): Promise<void> => {
    for (let i = 0; i < 3; i++) {
      await nextSlice()
      order.push(name)
    }
  }
  const both = Promise.all([worker('a'), worker('b')])
  expect(hasWaitingSlices()).toBe(true)
  await both
  expect(hasWaitingSlices()).toBe(false)
  expect(order.join('')).toBe('ababab')
})
