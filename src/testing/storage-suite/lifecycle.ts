import { expect } from 'vitest'
import {
  append,
  commit,
  del,
  eventually,
  expectError,
  KV,
  LOG,
  place,
  put,
  range,
  SCOPE,
  type Suite,
  valueAt,
} from './suite.ts'

const TREE = { scope: SCOPE, tag: KV }

/** Subscriptions and closing. */
export function testLifecycle(suite: Suite): void {
  suite.holds('a subscriber is notified of a commit, and can read it then', async storage => {
    const seen: (string | undefined)[] = []
    const unsubscribe = await storage.subscribe(TREE, () => {
      void valueAt(storage, 'k').then(value => seen.push(value))
    })
    await commit(storage, put('k', '1'))
    await eventually(() => seen.includes('1'))
    await storage.update([place('k')], () => ({ operations: [put('k', '2')], result: undefined }))
    await eventually(() => seen.includes('2'))
    await commit(storage, del('k'))
    await eventually(() => seen.includes(undefined))
    unsubscribe()
  })

  suite.holds('a subscriber is notified of commits to its tree, and of no others', async storage => {
    const calls = { kv: 0, log: 0, elsewhere: 0 }
    await storage.subscribe(TREE, () => calls.kv++)
    await storage.subscribe({ scope: SCOPE, tag: LOG }, () => calls.log++)
    await storage.subscribe({ scope: 'elsewhere', tag: KV }, () => calls.elsewhere++)
    await commit(storage, append('1'))
    await eventually(() => calls.log > 0)
    await commit(storage, put('k', '1'))
    await eventually(() => calls.kv > 0)
    expect(calls.elsewhere).toBe(0)
    expect((await storage.scan(range())).length).toBe(1)
  })

  suite.holds(
    'a subscriber with othersWithinMs is notified promptly of commits of its own process',
    async storage => {
      let calls = 0
      const leave = await storage.subscribe(TREE, () => calls++, { othersWithinMs: 60_000 })
      await commit(storage, put('k', '1'))
      await eventually(() => calls > 0)
      const before = calls
      await storage.update([place('k')], () => ({ operations: [put('k', '2')], result: undefined }))
      await eventually(() => calls > before)
      const again = calls
      await commit(storage, { op: 'drop', scope: SCOPE })
      await eventually(() => calls > again)
      leave()
      const left = calls
      await commit(storage, put('k', '3'))
      expect(calls).toBe(left)
    },
  )

  suite.holds('every subscriber of a tree is notified until it unsubscribes', async storage => {
    const calls = [0, 0, 0]
    const leave = await Promise.all(calls.map((_, i) => storage.subscribe(TREE, () => calls[i]++)))
    await commit(storage, put('k', '1'))
    await eventually(() => calls.every(count => count > 0))
    leave[1]()
    leave[1]()
    const before = [...calls]
    await commit(storage, put('k', '2'))
    await eventually(() => calls[0] > before[0] && calls[2] > before[2])
    expect(calls[1]).toBe(before[1])
  })

  suite.holds('a conflict notifies no subscriber', async storage => {
    let calls = 0
    await storage.subscribe(TREE, () => calls++)
    const points = [{ ...place('k'), version: 1 }]
    expect((await storage.commit({ points, operations: [put('k', '1')] })).status).toBe('conflict')
    await storage.subscribe({ scope: SCOPE, tag: LOG }, () => {})
    await commit(storage, append('later'))
    expect(calls).toBe(0)
  })

  suite.holds('close waits for calls in flight, and later calls are CLOSED', async storage => {
    const snapshot = await storage.snapshot()
    const underWay = Array.from({ length: 20 }, (_, i) => commit(storage, put(`${i}`, '')))
    const update = storage.update([place('n')], () => ({ operations: [put('n', '1')], result: 'done' }))
    await storage.close()
    expect(await Promise.all(underWay)).toHaveLength(20)
    expect((await update).result).toBe('done')

    await expectError(storage.get(SCOPE, KV, 'k'), 'CLOSED')
    await expectError(storage.scan(range()), 'CLOSED')
    await expectError(storage.snapshot(), 'CLOSED')
    await expectError(storage.commit({ operations: [put('k', '1')] }), 'CLOSED')
    await expectError(storage.commit({ operations: [] }), 'CLOSED')
    await expectError(
      storage.update([], () => ({ operations: [], result: 1 })),
      'CLOSED',
    )
    await expectError(
      storage.subscribe(TREE, () => {}),
      'CLOSED',
    )
    await expectError(storage.scopes({ limit: 1 }), 'CLOSED')
    await expectError(snapshot.get(SCOPE, KV, 'k'), 'CLOSED')
    await expectError(snapshot.scan(range()), 'CLOSED')
    snapshot.release()
    snapshot.release()
  })

  suite.holds('closing notifies each subscriber once, except those that have unsubscribed', async storage => {
    const calls = [0, 0, 0]
    const trees = [TREE, { scope: SCOPE, tag: LOG }, TREE]
    const leave = await Promise.all(trees.map((tree, i) => storage.subscribe(tree, () => calls[i]++)))
    leave[2]()
    await storage.close()
    await eventually(() => calls[0] > 0 && calls[1] > 0)
    await storage.close()
    expect(calls).toEqual([1, 1, 0])
  })

  suite.holdsInTime('now() never goes back, and is not before a visible commit', async (storage, clock) => {
    let last = 0
    for (const jump of [0, 5, -1_000, 3, 2_000, -5_000]) {
      clock.jump(jump)
      const { time } = await commit(storage, put('k', '1'))
      const now = storage.now()
      expect(now).toBeGreaterThanOrEqual(Math.max(time, last))
      last = now
      const later = await commit(storage, put('k', '2'))
      expect(later.time).toBeGreaterThanOrEqual(now)
    }
    clock.jump(10_000)
    expect(storage.now()).toBe(clock.now())
  })

  suite.holds('closing twice succeeds, even concurrently', async storage => {
    await commit(storage, put('k', '1'))
    await Promise.all([storage.close(), storage.close()])
    await storage.close()
  })
}
