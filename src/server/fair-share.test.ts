import { describe, expect, test } from 'vitest'
import { FairShare } from './fair-share.ts'

const share = (total: number, perTenant: number, waitMs = 60_000): FairShare =>
  new FairShare({ of: 'things', total, perTenant, waitMs })
const never = new AbortController().signal

/** Waits until everything that is ready has run. */
const settled = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

describe('a fair share', () => {
  test('a tenant holds at most its share, and the rest is free for others', async () => {
    const slots = share(3, 2)
    const release = await slots.take('a', 1, never)
    await slots.take('a', 1, never)
    let isServed = false
    void slots.take('a', 1, never).then(() => {
      isServed = true
    })
    await slots.take('b', 1, never)
    await settled()
    expect([isServed, slots.held, slots.waiting]).toEqual([false, 3, 1])
    release()
    await settled()
    expect([isServed, slots.held, slots.waiting]).toEqual([true, 3, 0])
  })

  test('tenants take turns, however long one queue is', async () => {
    const slots = share(1, 1)
    const order: string[] = []
    const work = async (tenant: string): Promise<void> => {
      const release = await slots.take(tenant, 1, never)
      order.push(tenant)
      await settled()
      release()
    }
    await Promise.all([...'aaaaaa', 'b', 'c', 'b'].map(work))
    expect(order.join('')).toBe('aabcabaaa')
  })

  test('a large request is not starved by small ones', async () => {
    const bytes = share(10, 10)
    const first = await bytes.take('a', 6, never)
    const large = bytes.take('b', 8, never)
    let isOvertaken = false
    void bytes.take('c', 1, never).then(() => {
      isOvertaken = true
    })
    await settled()
    expect(isOvertaken).toBe(false)
    first()
    await large
    await settled()
    expect([isOvertaken, bytes.held]).toEqual([true, 9])
  })

  test('a request that waits too long or behind too many is refused with Retry-After', async () => {
    const slots = share(1, 1, 20)
    await slots.take('a', 1, never)
    const refusal = { code: 'RATE_LIMITED', details: { retryAfterSeconds: expect.any(Number) } }
    const waiting = Array.from({ length: 101 }, () => slots.take('a', 1, never))
    await expect(waiting[100]).rejects.toMatchObject(refusal)
    expect(slots.waiting).toBe(100)
    for (const one of await Promise.allSettled(waiting)) expect(one.status).toBe('rejected')
    expect([slots.waiting, slots.refused, slots.held]).toEqual([0, 101, 1])
  })

  test('a caller that leaves frees its place, and a share is released only once', async () => {
    const slots = share(1, 1)
    const release = await slots.take('a', 1, never)
    const stop = new AbortController()
    const left = slots.take('a', 1, stop.signal)
    const next = slots.take('b', 1, never)
    stop.abort()
    await expect(left).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await expect(slots.take('a', 1, stop.signal)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    release()
    release()
    const releaseNext = await next
    expect([slots.held, slots.waiting]).toEqual([1, 0])
    releaseNext()
    expect(slots.held).toBe(0)
  })
})
