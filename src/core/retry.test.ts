import { expect, test } from 'vitest'
import { AnnalsError } from './errors.ts'
import { backoffMs, retried } from './retry.ts'

test('each wait is twice as long as the one before, up to a maximum', () => {
  const waits = [0, 1, 2, 3, 2_000].map(retry => backoffMs(retry, { firstMs: 20, maxMs: 100 }))
  expect(waits).toEqual([20, 40, 80, 100, 100])
})

test('jitter makes its share of a wait random', () => {
  const wait = (jitter: number, random: number): number =>
    backoffMs(1, { firstMs: 50, maxMs: 1_000, jitter, random: () => random })
  expect([wait(0.5, 0), wait(0.5, 1), wait(1, 0), wait(1, 0.25), wait(1, 1)]).toEqual([50, 100, 0, 25, 100])
})

test('only transient errors are retried, and only as often as allowed', async () => {
  const waits: number[] = []
  const sleep = async (ms: number): Promise<void> => void waits.push(ms)
  const attemptsBefore = async (error: Error): Promise<number> => {
    let attempts = 0
    const work = async (): Promise<never> => {
      attempts++
      throw error
    }
    await expect(retried(work, { retries: 2, firstMs: 10, sleep, random: () => 1 })).rejects.toBe(error)
    return attempts
  }
  expect(await attemptsBefore(new AnnalsError('INVALID_ARGUMENT', 'no'))).toBe(1)
  expect(await attemptsBefore(new Error('no'))).toBe(1)
  expect(waits).toEqual([])
  expect(await attemptsBefore(new AnnalsError('CONFLICT', 'no'))).toBe(3)
  expect(waits).toEqual([10, 20])
  const refused = Object.assign(new Error('no'), { code: 'ECONNREFUSED' })
  expect(await attemptsBefore(new TypeError('fetch failed', { cause: refused }))).toBe(3)
})
