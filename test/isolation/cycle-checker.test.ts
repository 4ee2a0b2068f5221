import { describe, expect, test } from 'vitest'
import { Database } from '../../src/engine/database.ts'
import type { Commit, CommitOutcome, Snapshot, Storage } from '../../src/engine/storage.ts'
import { seedOfRun } from '../../src/testing/random.ts'
import { ReferenceStorage } from '../../src/testing/reference-storage.ts'
import { SimulatedClock } from '../../src/testing/simulated-clock.ts'
import { rounds } from '../rounds.ts'
import { scheduledStorage } from '../simulation/scheduled-storage.ts'
import { SimulatedScheduler } from '../simulation/simulated-scheduler.ts'
import { type AnomalyKind, checkHistory } from './cycle-checker.ts'
import type { HistoryStep, TransactionRecord } from './history.ts'
import { runListAppend } from './list-append-workload.ts'

const read = (list: string, ...elements: string[]): HistoryStep => ({ kind: 'read', list, elements })
const add = (list: string, element: string): HistoryStep => ({ kind: 'append', list, element })
const all = (...elements: string[]): HistoryStep => ({
  kind: 'scan',
  first: 'a',
  last: 'z',
  found: elements.map(element => ({ list: element[0], elements: [element] })),
})

function history(...transactions: readonly (readonly HistoryStep[])[]): TransactionRecord[] {
  return transactions.map((steps, i) => ({ id: `T${i}`, outcome: 'committed', steps }))
}

function kinds(records: readonly TransactionRecord[]): AnomalyKind[] {
  return [...new Set(checkHistory(records).anomalies.map(anomaly => anomaly.kind))]
}

describe('histories written by hand', () => {
  test('a serial history is sound', () => {
    const records = history(
      [read('x'), add('x', '1')],
      [read('x', '1'), add('x', '2'), read('x', '1', '2'), add('y', '3')],
      [read('x', '1', '2'), read('y', '3')],
    )
    expect(checkHistory(records)).toMatchObject({ transactions: 3, lists: 2, elements: 3, anomalies: [] })
  })

  test('concurrent transactions that have a serial order are sound', () => {
    expect(
      kinds(history([read('x'), add('y', '1')], [add('x', '2')], [read('y', '1'), read('x', '2')])),
    ).toEqual([])
  })

  const cases: readonly (readonly [AnomalyKind, TransactionRecord[]])[] = [
    [
      'write skew',
      history([read('x'), add('y', '1')], [read('y'), add('x', '2')], [read('x', '2'), read('y', '1')]),
    ],
    ['write skew', history([all(), add('a', 'a1')], [all(), add('b', 'b1')], [all('a1', 'b1')])],
    ['read skew', history([add('x', '1'), add('y', '2')], [read('x', '1'), read('y')], [read('y', '2')])],
    ['read skew', history([read('x'), add('x', '1')], [read('x'), add('x', '2')], [read('x', '1', '2')])],
    ['circular information flow', history([add('x', '1'), read('y', '2')], [add('y', '2'), read('x', '1')])],
    [
      'write cycle',
      history(
        [add('x', '1'), add('y', '2')],
        [add('x', '3'), add('y', '4')],
        [read('x', '1', '3')],
        [read('y', '4', '2')],
      ),
    ],
    ['own write not read', history([add('x', '1'), read('x')], [read('x', '1')])],
    ['intermediate read', history([add('x', '1'), add('x', '2')], [read('x', '1')], [read('x', '1', '2')])],
    ['unwritten element', history([read('x', '9')])],
    ['repeated element', history([add('x', '1')], [read('x', '1', '1')])],
    ['diverging lists', history([add('x', '1')], [add('x', '2')], [read('x', '1')], [read('x', '2', '1')])],
  ]
  for (const [kind, records] of cases) {
    test(`${kind} is found`, () => {
      expect(kinds(records)).toContain(kind)
    })
  }

  test('the read of an aborted transaction’s element is found', () => {
    const [writer, reader] = history([add('x', '1')], [read('x', '1')])
    expect(kinds([{ ...writer, outcome: 'aborted' }, reader])).toEqual(['aborted read'])
    expect(kinds([{ ...writer, outcome: 'unknown' }, reader])).toEqual([])
  })

  test('a committed element that is missing at the end is a lost update', () => {
    const [first, second, final] = history([add('x', '1')], [add('x', '2')], [read('x', '2')])
    expect(kinds([first, second, final])).toEqual([])
    expect(kinds([first, second, { ...final, isFinal: true }])).toEqual(['lost update'])
  })

  test('a read that misses an earlier committed write is a stale read, unless they overlap', () => {
    const [writer, reader, later] = history([add('x', '1')], [read('x')], [read('x', '1')])
    const at = (record: TransactionRecord, begunAt: number, endedAt: number): TransactionRecord => ({
      ...record,
      begunAt,
      endedAt,
    })
    expect(kinds([at(writer, 0, 2), at(reader, 1, 3), at(later, 4, 5)])).toEqual([])
    const stale = checkHistory([at(writer, 0, 1), at(reader, 2, 3), at(later, 4, 5)]).anomalies
    expect(stale).toMatchObject([{ kind: 'stale read', transactions: expect.arrayContaining(['T0', 'T1']) }])
  })

  test('a cycle is reported step by step', () => {
    const [anomaly] = checkHistory(cases[0][1]).anomalies
    expect(anomaly.message).toBe('T0 -rw x→ T1, T1 -rw y→ T0')
    expect(anomaly.transactions).toEqual(['T0', 'T1'])
  })

  test('a history of 200,000 transactions in a row does not overflow the stack', () => {
    const records = Array.from({ length: 200_000 }, (_, i): TransactionRecord => {
      const steps = [...(i === 0 ? [] : [read(`x${i - 1}`, `${i - 1}`)]), add(`x${i}`, `${i}`)]
      return { id: `T${i}`, outcome: 'committed', begunAt: i, endedAt: i + 0.5, steps }
    })
    expect(checkHistory(records)).toMatchObject({ transactions: 200_000, anomalies: [] })
  })
})

/** Reference storages with a planted bug, and the anomalies that it may cause. The checker must find at least one of them. */
const BROKEN: Readonly<Record<string, { readonly wrap: Wrap; readonly finds: AnomalyKind[] }>> = {
  'nothing is validated': {
    wrap: storage => ({ commit: ({ operations }) => storage.commit({ operations }) }),
    finds: ['diverging lists', 'lost update'],
  },
  'ranges are not validated': {
    wrap: storage => ({ commit: ({ ranges: _, ...commit }) => storage.commit(commit) }),
    finds: ['write skew', 'read skew'],
  },
  'points are not validated': {
    wrap: storage => ({ commit: ({ points: _, ...commit }) => storage.commit(commit) }),
    finds: ['lost update'],
  },
  'an absent key is not validated': {
    wrap: storage => ({
      commit: commit =>
        storage.commit({ ...commit, points: (commit.points ?? []).filter(point => point.version > 0) }),
    }),
    finds: ['lost update'],
  },
  'a snapshot is not frozen': {
    wrap: storage => ({
      async snapshot(): Promise<Snapshot> {
        const { version, time, clock } = await storage.snapshot()
        return {
          version,
          time,
          clock,
          release() {},
          get: storage.get.bind(storage),
          scan: storage.scan.bind(storage),
        }
      },
    }),
    finds: ['read skew', 'write skew'],
  },
  'a snapshot is sometimes an old one': {
    wrap: storage => {
      let calls = 0
      let old: Promise<Snapshot> | undefined
      return {
        async snapshot(): Promise<Snapshot> {
          if (calls++ % 50 === 0) old = storage.snapshot()
          return calls % 10 === 0 && old !== undefined ? { ...(await old), release() {} } : storage.snapshot()
        },
      }
    },
    // It is a lost update if the final read of everything got an old list.
    finds: ['stale read', 'lost update'],
  },
  'a commit becomes visible in two parts': {
    wrap: (storage, scheduler) => ({
      async commit(commit: Commit): Promise<CommitOutcome> {
        const half = Math.ceil(commit.operations.length / 2)
        const first = await storage.commit({ ...commit, operations: commit.operations.slice(0, half) })
        if (first.status === 'conflict' || half === commit.operations.length) return first
        // Long enough that other transactions read in between.
        for (let i = 0; i < 3; i++) await scheduler.turn()
        const second = await storage.commit({ operations: commit.operations.slice(half) })
        if (second.status === 'conflict') return second
        return { ...second, appended: [...first.appended, ...second.appended] }
      },
    }),
    finds: ['read skew', 'write skew', 'lost update'],
  },
  'a commit is answered with a conflict after it took effect': {
    wrap: storage => {
      let calls = 0
      return {
        async commit(commit: Commit): Promise<CommitOutcome> {
          const outcome = await storage.commit(commit)
          return calls++ % 20 === 19 ? { status: 'conflict', on: { scope: 'x', tag: 1 } } : outcome
        },
      }
    },
    finds: ['aborted read'],
  },
  'an append is answered and dropped': {
    wrap: storage => {
      let calls = 0
      return {
        async commit(commit: Commit): Promise<CommitOutcome> {
          const appends = commit.operations.filter(({ op }) => op === 'append')
          if (appends.length === 0 || calls++ % 10 !== 9) return storage.commit(commit)
          const outcome = await storage.commit({
            ...commit,
            operations: commit.operations.filter(({ op }) => op !== 'append'),
          })
          if (outcome.status === 'conflict') return outcome
          const lost = { sequence: 0, hash: '', time: 0, duplicate: false, memo: '' }
          return { ...outcome, appended: appends.map(() => lost) }
        },
      }
    },
    finds: ['lost update'],
  },
}

type Wrap = (storage: Storage, scheduler: SimulatedScheduler) => Partial<Storage>

async function runSimulated(
  seed: number,
  transactions: number,
  wrap: Wrap = () => ({}),
): Promise<TransactionRecord[]> {
  const scheduler = new SimulatedScheduler(seed, new SimulatedClock(), { stepMs: 0.2 })
  const database = new Database(scheduledStorage(withBug(wrap, scheduler), scheduler), scheduler)
  const records = runListAppend(database, { seed, transactions, clients: 12 })
  await scheduler.run()
  return records
}

function withBug(wrap: Wrap, scheduler: SimulatedScheduler): Storage {
  const storage = new ReferenceStorage()
  const whole: Storage = {
    get: storage.get.bind(storage),
    scan: storage.scan.bind(storage),
    snapshot: storage.snapshot.bind(storage),
    commit: storage.commit.bind(storage),
    update: storage.update.bind(storage),
    subscribe: storage.subscribe.bind(storage),
    scopes: storage.scopes.bind(storage),
    now: storage.now.bind(storage),
    clock: storage.clock.bind(storage),
    close: storage.close.bind(storage),
  }
  return { ...whole, ...wrap(storage, scheduler) }
}

/** A fixed seed, because these tests prove what the checker finds for certain, not by chance. */
const BUG_SEED = 1
const TRANSACTIONS = rounds(9_000, 100_000)

describe('histories of a database', () => {
  const seed = seedOfRun()

  test(`P12: ${TRANSACTIONS} concurrent transactions, no anomaly (ANNALS_SEED=${seed})`, async () => {
    const records = await runSimulated(seed, TRANSACTIONS)
    const report = checkHistory(records)
    expect(report.anomalies.slice(0, 3)).toEqual([])
    console.log(`cycle checker: ${JSON.stringify({ seed, ...report, anomalies: report.anomalies.length })}`)
    expect(report.committed).toBeGreaterThan(TRANSACTIONS / 2)
    // A history without conflicts proves nothing.
    expect(report.aborted).toBeGreaterThan(TRANSACTIONS / 10)
    expect(report.dependencies).toBeGreaterThan(TRANSACTIONS)
  })

  test('the same seed gives the same history', async () => {
    const [first, second] = [await runSimulated(seed, 200), await runSimulated(seed, 200)]
    expect(first).toEqual(second)
  })

  for (const [bug, { wrap, finds }] of Object.entries(BROKEN)) {
    test(`a storage in which ${bug} is detected`, async () => {
      const found = kinds(await runSimulated(BUG_SEED, 2_000, wrap))
      expect(
        found.filter(kind => finds.includes(kind)),
        found.join(', '),
      ).not.toEqual([])
    })
  }
})
