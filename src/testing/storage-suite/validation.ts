import { expect } from 'vitest'
import type { Commit, CommitOutcome, Operation, RangeRead, Storage } from '../../engine/storage.ts'
import {
  append,
  commit,
  committed,
  del,
  LOG,
  put,
  range,
  readPoint,
  readRange,
  SCOPE,
  type Suite,
  valueAt,
} from './suite.ts'

interface Case {
  readonly what: string
  readonly before: readonly Operation[]
  /** The range that the commit has read. Without a range, the commit has read the key 'k'. */
  readonly range?: Partial<RangeRead>
  readonly between: readonly Operation[]
  readonly isConflict: boolean
}

const ABCD: readonly Operation[] = ['a', 'b', 'c', 'd'].map(key => put(key, key))

const CASES: readonly Case[] = [
  { what: 'a key that did not change', before: [put('k', '1')], between: [put('l', '1')], isConflict: false },
  {
    what: 'an absent key that stayed absent',
    before: [],
    between: [put('l', '1'), del('k')],
    isConflict: false,
  },
  { what: 'a key that was put', before: [put('k', '1')], between: [put('k', '2')], isConflict: true },
  {
    what: 'a key that was put again with the same value',
    before: [put('k', '1')],
    between: [put('k', '1')],
    isConflict: true,
  },
  { what: 'a key that was deleted', before: [put('k', '1')], between: [del('k')], isConflict: true },
  {
    what: 'a key that was deleted and added again',
    before: [put('k', '1')],
    between: [del('k'), put('k', '1')],
    isConflict: true,
  },
  { what: 'an absent key that was added', before: [], between: [put('k', '1')], isConflict: true },
  {
    what: 'the same key in another tree',
    before: [put('k', '1')],
    between: [put('k', '2', { scope: 'x' }), put('k', '2', { tag: 3 })],
    isConflict: false,
  },

  {
    what: 'a range that did not change',
    before: ABCD,
    range: { from: 'b', to: 'd' },
    between: [put('a', '2'), put('d', '2')],
    isConflict: false,
  },
  {
    what: 'a range with a changed entry',
    before: ABCD,
    range: { from: 'b', to: 'd' },
    between: [put('c', '2')],
    isConflict: true,
  },
  {
    what: 'a range with a phantom',
    before: ABCD,
    range: { from: 'b', to: 'd' },
    between: [put('bb', '2')],
    isConflict: true,
  },
  {
    what: 'a range that lost an entry',
    before: ABCD,
    range: { from: 'b', to: 'd' },
    between: [del('b')],
    isConflict: true,
  },
  {
    what: 'a range with an entry deleted and added again',
    before: ABCD,
    range: {},
    between: [del('b'), put('b', 'b')],
    isConflict: true,
  },
  {
    what: 'a range with a phantom at its inclusive bound',
    before: ABCD,
    range: { from: 'bb' },
    between: [put('bb', '2')],
    isConflict: true,
  },
  {
    what: 'a range with a new entry at its exclusive bound',
    before: ABCD,
    range: { to: 'cc' },
    between: [put('cc', '2')],
    isConflict: false,
  },
  {
    what: 'an empty range with a phantom',
    before: [],
    range: {},
    between: [put('k', '1')],
    isConflict: true,
  },
  {
    what: 'an empty range that stayed empty',
    before: [],
    range: { from: 'x' },
    between: [put('k', '1')],
    isConflict: false,
  },
  {
    what: 'a limited range with a new entry after its last one',
    before: ABCD,
    range: { limit: 2 },
    between: [put('bb', '2'), del('c')],
    isConflict: false,
  },
  {
    what: 'a limited range with a phantom before its last entry',
    before: ABCD,
    range: { limit: 2 },
    between: [put('aa', '2')],
    isConflict: true,
  },
  {
    what: 'a limited range whose first entry was deleted, so that one of the same version moved up',
    before: ABCD,
    range: { limit: 2 },
    between: [del('a')],
    isConflict: true,
  },
  {
    what: 'a limited range that was not full, with a phantom',
    before: ABCD,
    range: { limit: 5 },
    between: [put('e', '2')],
    isConflict: true,
  },
  {
    what: 'a reverse limited range with a new entry after its last one',
    before: ABCD,
    range: { limit: 2, reverse: true },
    between: [put('bb', '2')],
    isConflict: false,
  },
  {
    what: 'a reverse limited range with a phantom before its last entry',
    before: ABCD,
    range: { limit: 2, reverse: true },
    between: [put('cc', '2')],
    isConflict: true,
  },
  {
    what: 'the end of a log that grew',
    before: [append('1')],
    range: { tag: LOG, reverse: true, limit: 1 },
    between: [append('2')],
    isConflict: true,
  },
  {
    what: 'the beginning of a log that grew',
    before: [append('1')],
    range: { tag: LOG, limit: 1 },
    between: [append('2')],
    isConflict: false,
  },
]

/** P12: the first committer wins. A commit conflicts only if data that it has read was changed. */
export function testValidation(suite: Suite): void {
  for (const { what, before, range, between, isConflict } of CASES) {
    suite.holds(`P12: having read ${what} is ${isConflict ? 'a conflict' : 'no conflict'}`, async storage => {
      await commit(storage, ...before)
      const reads: Omit<Commit, 'operations'> =
        range === undefined
          ? { points: [await readPoint(storage, 'k')] }
          : { ranges: [await readRange(storage, range)] }
      await commit(storage, ...between)
      const outcome = await storage.commit({ ...reads, operations: [put('written', '1')] })
      expect(outcome.status).toBe(isConflict ? 'conflict' : 'committed')
      expect(await valueAt(storage, 'written')).toBe(isConflict ? undefined : '1')
    })
  }

  suite.holds(
    'P12: a conflict names the changed read, changes nothing and uses no sequence',
    async storage => {
      await commit(storage, put('k', '1'), put('same', '1'))
      const points = [await readPoint(storage, 'same'), await readPoint(storage, 'k')]
      await commit(storage, put('k', '2'))
      const operations = [put('k', '3'), put('new', '3'), append('lost', { dedupe: { key: 'once' } })]
      const outcome = await storage.commit({ points, operations })
      expect(outcome).toMatchObject({ status: 'conflict', on: { scope: SCOPE, key: 'k' } })
      expect(await storage.scan(range())).toMatchObject([
        { key: 'k', value: '2' },
        { key: 'same', value: '1' },
      ])
      const { appended } = await commit(storage, append('kept', { dedupe: { key: 'once' } }))
      expect(appended).toMatchObject([{ sequence: 0, duplicate: false }])
    },
  )

  suite.holds('P12: reads of a snapshot are validated against the commits after it', async storage => {
    await commit(storage, put('k', '1'))
    const snapshot = await storage.snapshot()
    const inTime = { points: [await readPoint(snapshot, 'k')], operations: [put('k', '2')] }
    expect((await storage.commit(inTime)).status).toBe('committed')
    const tooLate = { points: [await readPoint(snapshot, 'k')], operations: [put('k', '3')] }
    expect((await storage.commit(tooLate)).status).toBe('conflict')
    snapshot.release()
  })

  suite.holds('P12: a commit validates its reads even if it writes nothing', async storage => {
    const points = [await readPoint(storage, 'k')]
    await committed(storage, { points, operations: [] })
    await commit(storage, put('k', '1'))
    expect((await storage.commit({ points, operations: [] })).status).toBe('conflict')
  })

  suite.holds('P12: concurrent puts, deletes and appends without reads never conflict', async storage => {
    await commit(storage, put('k', '0'))
    const blind = Array.from({ length: 96 }, (_, i) => [put('k', `${i}`), del('k'), append(`${i}`)][i % 3])
    const outcomes = await Promise.all(blind.map(operation => storage.commit({ operations: [operation] })))
    expect(outcomes.filter(outcome => outcome.status === 'conflict')).toEqual([])
  })

  suite.holds('P12: the first of 64 concurrent commits that read the same version wins', async storage => {
    await commit(storage, put('k', '0'))
    const point = await readPoint(storage, 'k')
    const outcomes = await race(storage, 64, i => ({ points: [point], operations: [put('k', `${i}`)] }))
    expect(winners(outcomes)).toBe(1)
  })

  suite.holds(
    'P12: the first of 64 concurrent commits that add to a range they read as empty wins',
    async storage => {
      const empty = await readRange(storage, { from: 'a', to: 'b' })
      const outcomes = await race(storage, 64, i => ({ ranges: [empty], operations: [put(`a${i}`, '')] }))
      expect(winners(outcomes)).toBe(1)
      expect(await storage.scan(range({ from: 'a', to: 'b' }))).toHaveLength(1)
    },
  )

  suite.holds(
    'P12: two concurrent commits that each read what the other writes do not both succeed',
    async storage => {
      await commit(storage, put('x', '1'), put('y', '1'))
      for (let round = 0; round < 20; round++) {
        const points = [await readPoint(storage, 'x'), await readPoint(storage, 'y')]
        const outcomes = await race(storage, 2, i => ({
          points,
          operations: [put(i === 0 ? 'x' : 'y', `${round}`)],
        }))
        expect(winners(outcomes)).toBe(1)
      }
    },
  )
}

function race(storage: Storage, count: number, commitOf: (i: number) => Commit): Promise<CommitOutcome[]> {
  return Promise.all(Array.from({ length: count }, (_, i) => storage.commit(commitOf(i))))
}

function winners(outcomes: readonly CommitOutcome[]): number {
  return outcomes.filter(outcome => outcome.status === 'committed').length
}
