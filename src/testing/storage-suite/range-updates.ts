import { expect } from 'vitest'
import type { ByteString } from '../../core/bytes.ts'
import type { BoundedRange, Range, Step, Storage, Updated } from '../../engine/storage.ts'
import {
  append,
  commit,
  del,
  eventually,
  expectError,
  KV,
  keysOf,
  LOG,
  place,
  put,
  range,
  SCOPE,
  type Suite,
} from './suite.ts'

const QUEUE = { from: 'ready/', to: 'ready0' }

/** P23: an update reads ranges in the same step. */
export function testRangeUpdates(suite: Suite): void {
  suite.holds(
    'P23: 100 concurrent workers that each claim the first entry of a queue get different ones',
    async storage => {
      await fillQueue(storage, 120)
      const claims = await Promise.all(Array.from({ length: 100 }, (_, i) => claim(storage, `${i}`)))
      const claimed = claims.map(({ result }) => result)
      expect([...claimed].sort()).toEqual(Array.from({ length: 100 }, (_, i) => jobName(i)))
      expect(await storage.scan(range(QUEUE))).toHaveLength(20)
      const taken = await storage.scan(range({ from: 'taken/', to: 'taken0' }))
      expect(taken.map(({ key, value }) => [key.slice(6), value])).toEqual(
        claimed.map((job, worker) => [job, `${worker}`]).sort(),
      )
      // An earlier job has a lower version, because the claims took effect in the order of the queue.
      const byJob = claims.sort((a, b) => (`${a.result}` < `${b.result}` ? -1 : 1))
      const versions = byJob.map(({ version }) => version)
      expect(versions).toEqual([...new Set(versions)].sort((a, b) => a - b))
    },
  )

  suite.holds(
    'P23: more workers than entries leave the queue empty, and the others get nothing',
    async storage => {
      await fillQueue(storage, 7)
      const claims = await Promise.all(Array.from({ length: 30 }, (_, i) => claim(storage, `${i}`)))
      const claimed = claims.map(({ result }) => result).filter(job => job !== undefined)
      expect(claimed.sort()).toEqual(Array.from({ length: 7 }, (_, i) => jobName(i)))
      expect(await storage.scan(range(QUEUE))).toEqual([])
    },
  )

  suite.holds('P23: concurrent steps that add to a range see each other’s entries', async storage => {
    const numbers = await Promise.all(
      Array.from({ length: 60 }, () =>
        updateRange<number>(storage, { from: 'n', to: 'o', reverse: true, limit: 1 }, last => {
          const next = last.length === 0 ? 0 : Number(last[0].value) + 1
          return { operations: [put(`n${`${next}`.padStart(4, '0')}`, `${next}`)], result: next }
        }),
      ),
    )
    const results = numbers.map(({ result }) => result).sort((a, b) => a - b)
    expect(results).toEqual(Array.from({ length: 60 }, (_, i) => i))
    expect(await storage.scan(range({ from: 'n', to: 'o' }))).toHaveLength(60)
  })

  suite.holds(
    'P23: workers on overlapping ranges, from both ends and with different limits, share no entry',
    async storage => {
      await fillQueue(storage, 200)
      const taken = await Promise.all(
        Array.from({ length: 60 }, (_, i) =>
          updateRange(storage, { ...QUEUE, reverse: i % 2 === 0, limit: 1 + (i % 3) }, entries => ({
            operations: entries.map(({ key }) => del(key)),
            result: keysOf(entries),
          })),
        ),
      )
      const keys = taken.flatMap(({ result }) => result)
      expect(taken.map(({ result }) => result.length)).toEqual(
        Array.from({ length: 60 }, (_, i) => 1 + (i % 3)),
      )
      expect(new Set(keys).size).toBe(120)
      expect(await storage.scan(range(QUEUE))).toHaveLength(80)
    },
  )

  suite.holds(
    'P23: a range in reverse with a limit has the last entries, the last one first',
    async storage => {
      await commit(storage, ...['a', 'b', 'c', 'd', 'e'].map(key => put(key, key.toUpperCase())))
      const { result } = await storage.update([place('b'), place('x')], seen, {
        ranges: [
          { ...range({ reverse: true }), limit: 2 },
          { ...range({ from: 'b', to: 'd' }), limit: 10 },
          { ...range({ from: 'b', to: 'd', reverse: true }), limit: 1 },
          { ...range({ from: 'd', to: 'b' }), limit: 3 },
          { ...range({ scope: 'elsewhere' }), limit: 3 },
        ],
      })
      expect(result).toEqual([
        ['B', undefined],
        [['e', 'd'], ['b', 'c'], ['c'], [], []],
      ])
    },
  )

  suite.holds('P23: entries of a range have their value, version and time', async storage => {
    const { version, time } = await commit(storage, put('k', 'v'))
    const ranges = [{ ...range(), limit: 1 }]
    const { result } = await storage.update([], (_, scanned) => ({ operations: [], result: scanned }), {
      ranges,
    })
    expect(result).toEqual([[{ key: 'k', value: 'v', version, time, expiresAt: 0 }]])
  })

  suite.holds(
    'P23: entries that an earlier step has written have the version of its commit',
    async storage => {
      const writes = Promise.all(
        Array.from({ length: 10 }, (_, i) =>
          updateRange(storage, { limit: 100 }, entries => ({
            operations: [put(`k${i}`, 'v')],
            result: entries.map(({ key, version }) => [key, version] as const),
          })),
        ),
      )
      const versions = new Map((await writes).map(({ version }, i) => [`k${i}`, version]))
      for (const { result } of await writes) {
        for (const [key, version] of result) expect(version).toBe(versions.get(key))
      }
      const stored = await storage.scan(range())
      expect(stored.map(({ key, version }) => [key, version])).toEqual([...versions].sort())
    },
  )

  suite.holds('P23: a step that throws changes nothing, and fails only its own caller', async storage => {
    await fillQueue(storage, 4)
    const mine = new Error('mine')
    const before = claim(storage, 'before')
    const failing = updateRange<never>(storage, { ...QUEUE, limit: 1 }, () => {
      throw mine
    }).catch((error: unknown) => error)
    const refused = updateRange(storage, { ...QUEUE, limit: 1 }, () => ({
      operations: [put('fine', '1'), put('', 'a key must not be empty')],
      result: 1,
    }))
    const after = claim(storage, 'after')
    await expectError(refused, 'INVALID_ARGUMENT')
    expect(await failing).toBe(mine)
    expect([(await before).result, (await after).result].sort()).toEqual([jobName(0), jobName(1)])
    expect(await storage.get(SCOPE, KV, 'fine')).toBeUndefined()
    expect(await storage.scan(range(QUEUE))).toHaveLength(2)
  })

  suite.holds('P23: a range sees the writes of this process that are still pending', async storage => {
    await commit(storage, put('a', '1'), put('b', '1'), put('d', '1'))
    const pending = [
      commit(storage, put('c', '2')),
      commit(storage, del('b')),
      storage.update([place('a')], () => ({ operations: [put('a', '2')], result: undefined })),
    ]
    const update = updateRange(storage, { limit: 3 }, entries => ({
      operations: [],
      result: entries.map(({ key, value }) => key + value),
    }))
    await Promise.all(pending.slice(0, 2))
    expect((await update).result.slice(1)).toEqual(['c2', 'd1'])
    await Promise.all(pending)
  })

  suite.holds('P23: a subscriber of a tree is notified of an update, and can read it then', async storage => {
    await fillQueue(storage, 1)
    let taken = 0
    const leave = await storage.subscribe({ scope: SCOPE, tag: KV }, () => {
      void storage.scan(range({ from: 'taken/' })).then(found => {
        taken = found.length
      })
    })
    await claim(storage, 'me')
    await eventually(() => taken === 1)
    leave()
  })

  suite.holds('P23: a step over ranges may append, write to other scopes and drop them', async storage => {
    await fillQueue(storage, 40)
    await commit(storage, put('old', '1', { scope: 'other' }))
    const moves = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        updateRange(storage, { ...QUEUE, limit: 1 }, ([first]) => ({
          operations: [
            del(first.key),
            ...(i === 3 ? [{ op: 'drop' as const, scope: 'other' }] : []),
            put(first.key, 'moved', { scope: i % 2 === 0 ? 'even' : 'odd' }),
            append(first.key),
          ],
          result: first.key,
        })),
      ),
    )
    expect(new Set(moves.map(({ result }) => result)).size).toBe(20)
    const sequences = moves.map(({ appended }) => appended[0].sequence)
    expect(sequences.sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i))
    expect(await storage.scan(range({ scope: 'even' }))).toHaveLength(10)
    expect(await storage.scan(range({ scope: 'odd' }))).toHaveLength(10)
    expect(await storage.scan(range({ scope: 'other' }))).toEqual([])
    expect(await storage.scan(range({ tag: LOG }))).toHaveLength(20)
  })

  suite.holds('P23: a step may read a range of a log, and sees every append before it', async storage => {
    const bodies = await Promise.all(
      Array.from({ length: 20 }, () =>
        updateRange(storage, { tag: LOG, reverse: true, limit: 1 }, events => {
          const body = events.length === 0 ? '0' : `${Number(events[0].value.slice(72)) + 1}`
          return { operations: [append(body)], result: Number(body) }
        }),
      ),
    )
    const results = bodies.map(({ result }) => result).sort((a, b) => a - b)
    expect(results).toEqual(Array.from({ length: 20 }, (_, i) => i))
  })

  suite.holdsInTime('P23: expired entries are absent from a range', async (storage, clock) => {
    const expiresAt = clock.now() + 50
    await commit(
      storage,
      put('a', '1', { expiresAt }),
      put('b', '2'),
      put('c', '3', { expiresAt }),
      put('d', '4'),
    )
    const keys = async (): Promise<ByteString[]> =>
      (await updateRange(storage, { limit: 2 }, entries => ({ operations: [], result: keysOf(entries) })))
        .result
    expect(await keys()).toEqual(['a', 'b'])
    clock.advance(50)
    expect(await keys()).toEqual(['b', 'd'])
    // Also if a step that waits at the same time writes an entry that has expired already.
    const dead = updateRange(storage, { limit: 9 }, () => ({
      operations: [put('aa', '1', { expiresAt }), put('bb', '1', { expiresAt: clock.now() + 9 })],
      result: undefined,
    }))
    expect((await Promise.all([dead, keys()]))[1]).not.toContain('aa')
    expect(await keys()).toEqual(['b', 'bb'])
  })

  suite.holds('P23: malformed ranges are refused, and the step does not run', async storage => {
    let ran = 0
    const step: Step<undefined> = () => {
      ran++
      return { operations: [], result: undefined }
    }
    const refused: readonly object[] = [
      { limit: 0 },
      { limit: -1 },
      { limit: 1.5 },
      { limit: Number.NaN },
      { limit: '3' },
      { limit: undefined },
      { limit: 10_001 },
      { limit: 1, tag: 0 },
      { limit: 1, scope: '' },
      { limit: 1, scope: 'a\0b' },
      { limit: 1, from: '\u0100' },
      { limit: 1, to: 3 },
    ]
    for (const more of refused) {
      const ranges = [{ ...range(), limit: 1, ...more } as BoundedRange]
      await expectError(storage.update([], step, { ranges }), 'INVALID_ARGUMENT')
    }
    const together = [
      { ...range(), limit: 9_000 },
      { ...range({ scope: 'b' }), limit: 1_001 },
    ]
    await expectError(storage.update([], step, { ranges: together }), 'INVALID_ARGUMENT')
    expect(ran).toBe(0)
    await storage.update([], step, { ranges: [{ ...range(), limit: 10_000 }] })
    expect(ran).toBeGreaterThan(0)
  })
}

/** The values of the places, and the keys of the ranges. */
const seen: Step<readonly [(ByteString | undefined)[], ByteString[][]]> = (found, ranges) => ({
  operations: [],
  result: [found.map(entry => entry?.value), ranges.map(keysOf)],
})

function updateRange<T>(
  storage: Storage,
  more: Partial<Range> & { readonly limit: number },
  step: (entries: Parameters<Step<T>>[1][number]) => ReturnType<Step<T>>,
): Promise<Updated<T>> {
  const ranges = [{ ...range(), ...more }]
  return storage.update<T>([], (_, [entries]) => step(entries), { ranges })
}

function jobName(i: number): ByteString {
  return `${i}`.padStart(5, '0')
}

async function fillQueue(storage: Storage, jobs: number): Promise<void> {
  await commit(storage, ...Array.from({ length: jobs }, (_, i) => put(`ready/${jobName(i)}`, 'job')))
}

/** Moves the first job of the queue to the worker, and returns its name; undefined if the queue is empty. */
function claim(storage: Storage, worker: ByteString): Promise<Updated<ByteString | undefined>> {
  return updateRange<ByteString | undefined>(storage, { ...QUEUE, limit: 1 }, ([first]) => {
    if (first === undefined) return { operations: [], result: undefined }
    const job = first.key.slice(QUEUE.from.length)
    return { operations: [del(first.key), put(`taken/${job}`, worker)], result: job }
  })
}
