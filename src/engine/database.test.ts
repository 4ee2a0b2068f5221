import { describe, expect, test } from 'vitest'
import { SimulatedScheduler } from '../../test/simulation/simulated-scheduler.ts'
import { ReferenceStorage } from '../testing/reference-storage.ts'
import { SimulatedClock } from '../testing/simulated-clock.ts'
import { Database, type TransactionOptions } from './database.ts'
import { TAGS } from './keys.ts'
import type { Commit, CommitOutcome, Snapshot } from './storage.ts'
import type { Transaction } from './transaction.ts'

const SCOPE = 'run'
const KV = TAGS.kv

/** A storage that returns `conflict` for the first `conflicts` commits, and counts the snapshots that are held. */
class ContendedStorage extends ReferenceStorage {
  conflictsLeft: number
  snapshotsHeld = 0
  /** Every commit waits for this promise. */
  commitGate: Promise<void> = Promise.resolve()

  constructor(conflicts = 0) {
    super()
    this.conflictsLeft = conflicts
  }

  override async commit(commit: Commit): Promise<CommitOutcome> {
    await this.commitGate
    if (this.conflictsLeft-- > 0) return { status: 'conflict', on: { scope: SCOPE, tag: KV, key: 'k' } }
    return super.commit(commit)
  }

  override async snapshot(): Promise<Snapshot> {
    const snapshot = await super.snapshot()
    this.snapshotsHeld++
    const release = (): void => {
      this.snapshotsHeld--
      snapshot.release()
    }
    return { ...snapshot, release }
  }
}

/** A database in simulated time. `outcome` runs a transaction until no timer is left. */
function setUp(conflicts = 0) {
  const clock = new SimulatedClock(0)
  const scheduler = new SimulatedScheduler(1, clock)
  const storage = new ContendedStorage(conflicts)
  const slept: number[] = []
  const timing = {
    random: (): number => 0.5,
    sleep: (ms: number): Promise<void> => {
      slept.push(ms)
      return scheduler.sleep(ms)
    },
    timer: scheduler.timer.bind(scheduler),
    now: clock.now,
  }
  const database = new Database(storage, timing)
  const outcome = async <T>(
    work: (tx: Transaction) => Promise<T> | T,
    options?: TransactionOptions,
  ): Promise<{ result?: T; error?: unknown }> => {
    const settled = database.transaction(work, options).then(
      result => ({ result }),
      (error: unknown) => ({ error }),
    )
    await scheduler.run()
    return settled
  }
  return { clock, scheduler, storage, database, slept, outcome }
}

const increment = async (tx: Transaction): Promise<number> => {
  const next = Number((await tx.get(SCOPE, KV, 'k'))?.value ?? '0') + 1
  tx.put(SCOPE, KV, 'k', `${next}`)
  return next
}
const never = (): Promise<never> => new Promise(() => {})

describe('retries', () => {
  test('P12: a transaction in conflict is retried after growing pauses', async () => {
    const { outcome, slept } = setUp(5)
    expect(await outcome(increment)).toEqual({ result: 1 })
    expect(slept).toEqual([1, 2, 4, 8, 16])
  })

  test('P12: after the last retry it rejects with CONFLICT, the number of attempts and the key', async () => {
    const { outcome, slept, storage } = setUp(100)
    const { error } = await outcome(increment)
    expect(error).toMatchObject({ code: 'CONFLICT', details: { attempts: 17, on: { key: 'k' } } })
    expect(slept).toHaveLength(16)
    expect(Math.max(...slept)).toBe(50)
    expect(storage.snapshotsHeld).toBe(0)
  })

  test('maxRetries: 0 tries once', async () => {
    const { outcome } = setUp(1)
    expect(await outcome(increment, { maxRetries: 0 })).toMatchObject({ error: { details: { attempts: 1 } } })
  })

  test('P12: 50 concurrent increments of one key are all counted', async () => {
    const database = new Database(new ReferenceStorage())
    const results = await Promise.all(
      Array.from({ length: 50 }, () => database.transaction(increment, { maxRetries: 1000 })),
    )
    expect([...results].sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i + 1))
  })
})

describe('conditional writes', () => {
  test('are applied if no place has changed since it was read, and otherwise not at all', async () => {
    const database = new Database(new ReferenceStorage())
    const put = (value: string): { op: 'put'; scope: string; tag: number; key: string; value: string } => ({
      op: 'put',
      scope: SCOPE,
      tag: KV,
      key: 'k',
      value,
    })
    const point = (version: number): { scope: string; tag: number; key: string; version: number } => ({
      scope: SCOPE,
      tag: KV,
      key: 'k',
      version,
    })
    const first = await database.writeIf([point(0)], [put('1')])
    expect(await database.writeIf([point(0)], [put('2')])).toBeUndefined()
    expect((await database.get(SCOPE, KV, 'k'))?.value).toBe('1')
    expect(await database.writeIf([point(first?.version ?? 0)], [put('3')])).toMatchObject({
      status: 'committed',
    })
    expect((await database.get(SCOPE, KV, 'k'))?.value).toBe('3')
  })
})

describe('errors of the caller', () => {
  test('P5: an error that the function throws rejects the promise unchanged, and nothing is written', async () => {
    const { outcome, database, storage } = setUp()
    const mine = new Error('mine')
    const failing = [
      async (tx: Transaction): Promise<void> => {
        await increment(tx)
        throw mine
      },
      (tx: Transaction): void => {
        tx.put(SCOPE, KV, 'k', '1')
        throw mine
      },
    ]
    for (const work of failing) expect((await outcome(work)).error).toBe(mine)
    expect(await database.get(SCOPE, KV, 'k')).toBeUndefined()
    expect(storage.snapshotsHeld).toBe(0)
  })

  test('P4: the transaction cannot be used after the function has returned', async () => {
    const { outcome } = setUp()
    const { result: tx } = await outcome(tx => tx)
    expect(() => tx!.put(SCOPE, KV, 'k', '1')).toThrow(expect.objectContaining({ code: 'INVALID_OPERATION' }))
    await expect(tx!.get(SCOPE, KV, 'k')).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
  })

  test('P4: a read-only transaction refuses writes', async () => {
    const { outcome } = setUp()
    const { error } = await outcome(increment, { readOnly: true })
    expect(error).toMatchObject({ code: 'INVALID_OPERATION' })
  })

  test('P12: a read-only transaction never aborts', async () => {
    const { outcome, database } = setUp()
    const work = async (tx: Transaction): Promise<unknown> => {
      const before = await tx.get(SCOPE, KV, 'k')
      await database.write([{ op: 'put', scope: SCOPE, tag: KV, key: 'k', value: 'new' }])
      return [before, await tx.get(SCOPE, KV, 'k')]
    }
    expect(await outcome(work, { readOnly: true })).toEqual({ result: [undefined, undefined] })
  })

  test.each([
    { timeoutMs: 0 },
    { timeoutMs: 1.5 },
    { timeoutMs: Number.POSITIVE_INFINITY },
    { timeoutMs: 2 ** 31 },
    { maxRetries: -1 },
    { maxRetries: 0.5 },
  ])('%j is INVALID_ARGUMENT', async options => {
    const { outcome } = setUp()
    expect(await outcome(increment, options)).toMatchObject({ error: { code: 'INVALID_ARGUMENT' } })
  })
})

describe('time-outs and aborts', () => {
  test('a function that takes too long gets TIMEOUT, and its transaction is rolled back', async () => {
    const { outcome, storage, clock } = setUp()
    let seen: Transaction | undefined
    const { error } = await outcome(
      tx => {
        seen = tx
        tx.put(SCOPE, KV, 'k', '1')
        return never()
      },
      { timeoutMs: 500 },
    )
    expect(error).toMatchObject({ code: 'TIMEOUT', details: { timeoutMs: 500 } })
    expect(clock.now()).toBe(500)
    expect(() => seen!.put(SCOPE, KV, 'k', '2')).toThrow(expect.objectContaining({ code: 'TIMEOUT' }))
    expect(storage.snapshotsHeld).toBe(0)
  })

  test('the default time-out is 30 seconds for all attempts together', async () => {
    const { outcome, clock, slept } = setUp(Number.POSITIVE_INFINITY)
    expect(await outcome(() => never())).toMatchObject({ error: { code: 'TIMEOUT' } })
    expect(clock.now()).toBe(30_000)
    expect(await outcome(increment, { maxRetries: 1e6 })).toMatchObject({ error: { code: 'TIMEOUT' } })
    expect(clock.now()).toBeGreaterThanOrEqual(60_000)
    expect(slept.length).toBeGreaterThan(500)
  })

  test('a transaction from begin that is never ended times out and releases its snapshot', async () => {
    const { database, scheduler, storage, clock } = setUp()
    const tx = database.begin()
    tx.put(SCOPE, KV, 'k', '1')
    await scheduler.run()
    expect(clock.now()).toBe(30_000)
    expect(storage.snapshotsHeld).toBe(0)
    await expect(tx.get(SCOPE, KV, 'k')).rejects.toMatchObject({ code: 'TIMEOUT' })
    await expect(tx.commit()).rejects.toMatchObject({ code: 'TIMEOUT' })
    expect(await database.get(SCOPE, KV, 'k')).toBeUndefined()
  })

  test('a transaction that has ended leaves no timer', async () => {
    const { database, scheduler, clock, outcome } = setUp()
    const [committed, rolledBack] = [database.begin(), database.begin({ timeoutMs: 5 })]
    await Promise.all([committed.commit(), rolledBack.rollback(), outcome(increment)])
    await scheduler.run()
    expect(clock.now()).toBe(0)
  })

  test('a commit that was sent is awaited even after the time-out', async () => {
    const { outcome, storage, scheduler, database, clock } = setUp()
    storage.commitGate = scheduler.sleep(1_000)
    expect(await outcome(increment, { timeoutMs: 10 })).toEqual({ result: 1 })
    expect(clock.now()).toBe(1_000)
    expect(await database.get(SCOPE, KV, 'k')).toMatchObject({ value: '1' })
  })

  test('an abort rolls back and rejects with its reason, before, during and after the function', async () => {
    const { outcome, database, storage } = setUp()
    const reason = new Error('changed my mind')
    expect((await outcome(increment, { signal: AbortSignal.abort(reason) })).error).toBe(reason)
    const during = new AbortController()
    const hanging = async (tx: Transaction): Promise<never> => {
      await increment(tx)
      during.abort(reason)
      return never()
    }
    expect((await outcome(hanging, { signal: during.signal })).error).toBe(reason)
    const atTheEnd = new AbortController()
    const returning = (tx: Transaction): void => {
      tx.put(SCOPE, KV, 'k', '1')
      atTheEnd.abort(reason)
    }
    expect((await outcome(returning, { signal: atTheEnd.signal })).error).toBe(reason)
    expect(await database.get(SCOPE, KV, 'k')).toBeUndefined()
    expect(storage.snapshotsHeld).toBe(0)
  })
})

describe('operations without a transaction', () => {
  test('P4: update, write, get, scan, subscribe and close go directly to the storage', async () => {
    const database = new Database(new ReferenceStorage())
    let calls = 0
    const leave = await database.subscribe({ scope: SCOPE, tag: KV }, () => calls++)
    const place = { scope: SCOPE, tag: KV, key: 'k' }
    const updated = await database.update([place], ([entry]) => ({
      operations: [{ op: 'put', ...place, value: `${entry?.value ?? 'none'}!` }],
      result: 'done',
    }))
    expect(updated).toMatchObject({ result: 'done', version: 1 })
    await database.write([{ op: 'put', ...place, key: 'l', value: '2' }])
    expect(await database.get(SCOPE, KV, 'k')).toMatchObject({ value: 'none!' })
    expect(await database.scan({ scope: SCOPE, tag: KV, reverse: true })).toMatchObject([
      { key: 'l' },
      { key: 'k' },
    ])
    expect(calls).toBe(2)
    leave()
    await database.close()
    await expect(database.get(SCOPE, KV, 'k')).rejects.toMatchObject({ code: 'CLOSED' })
    await expect(database.transaction(increment)).rejects.toMatchObject({ code: 'CLOSED' })
    expect(() => database.begin()).toThrow(expect.objectContaining({ code: 'CLOSED' }))
  })

  test('malformed reads and writes get INVALID_ARGUMENT', async () => {
    const database = new Database(new ReferenceStorage())
    const invalid = { code: 'INVALID_ARGUMENT' }
    await expect(database.get(SCOPE, KV, '')).rejects.toMatchObject(invalid)
    await expect(database.scan({ scope: SCOPE, tag: KV, limit: 0 })).rejects.toMatchObject(invalid)
    await expect(
      database.write([{ op: 'put', scope: SCOPE, tag: KV, key: '', value: '' }]),
    ).rejects.toMatchObject(invalid)
  })
})

test('P4: a transaction that never yields to a timer times out too', async () => {
  const database = new Database(new ReferenceStorage())
  const started = performance.now()
  const attempt = database.transaction(
    async tx => {
      while ((await tx.get(SCOPE, KV, 'never')) === undefined);
    },
    { timeoutMs: 20 },
  )
  await expect(attempt).rejects.toMatchObject({ code: 'TIMEOUT' })
  expect(performance.now() - started).toBeLessThan(5_000)
})
