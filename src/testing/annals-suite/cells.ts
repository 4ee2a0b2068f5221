import { expect } from 'vitest'
import type { CellState } from '../../index.ts'
import { bad, expectFrozen, outcomes, RUN, refused, type Suite, times } from './suite.ts'

const increment = ({ value }: CellState): { value: number; result: number } => ({
  value: Number(value) + 1,
  result: Number(value),
})

/** P8: versioned cells, changed by compare-and-swap or by a transition function. */
export function testCells(suite: Suite): void {
  suite.holds('a missing cell reads as undefined', async db => {
    expect(await db.cells.read(RUN, 'c')).toBeUndefined()
    expect(await db.cells.exists(RUN, 'c')).toBe(false)
    expect(await db.cells.list(RUN)).toEqual([])
    expect(await db.cells.delete(RUN, 'c')).toBe(false)
  })

  suite.holds('P8: a version starts at 1 and grows by 1 with every change', async db => {
    expect(await db.cells.init(RUN, 'c', 'a')).toBe(1)
    expect(await db.cells.cas(RUN, 'c', 1, 'b')).toBe(2)
    expect(await db.cells.set(RUN, 'c', 'b')).toBe(3)
    expect(await db.cells.transition(RUN, 'c', () => ({ value: 'd', result: 'told' }))).toEqual({
      result: 'told',
      value: 'd',
      version: 4,
    })
    expect(await db.cells.read(RUN, 'c')).toEqual({ value: 'd', version: 4, updatedAt: expect.any(Number) })
    expect(await db.cells.set(RUN, 'other', 0)).toBe(1)
    expect(await db.cells.list(RUN)).toEqual(['c', 'other'])
    expect(await db.cells.exists(RUN, 'other')).toBe(true)
  })

  suite.holds('P8: a version never goes back, even across delete and init', async db => {
    await db.cells.init(RUN, 'c', 1)
    await db.cells.set(RUN, 'c', 2)
    expect(await db.cells.delete(RUN, 'c')).toBe(true)
    expect(await db.cells.delete(RUN, 'c')).toBe(false)
    expect(await db.cells.read(RUN, 'c')).toBeUndefined()
    expect(await db.cells.exists(RUN, 'c')).toBe(false)
    expect(await db.cells.list(RUN)).toEqual([])
    expect(await db.cells.init(RUN, 'c', 3)).toBe(3)
    await db.cells.delete(RUN, 'c')
    expect(await db.cells.set(RUN, 'c', 4)).toBe(4)
    await db.cells.delete(RUN, 'c')
    const { version } = await db.cells.transitionOrInit(RUN, 'c', 0, increment)
    expect(version).toBe(5)
    await refused(db.cells.cas(RUN, 'c', 1, 'by one who held version 1'), 'VERSION_MISMATCH')
  })

  suite.holds('P8: init of an existing cell is CELL_EXISTS, and changes nothing', async db => {
    await db.cells.init(RUN, 'c', 1)
    await refused(db.cells.init(RUN, 'c', 2), 'CELL_EXISTS')
    expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 1, version: 1 })
  })

  suite.holds('P8: cas with another version is VERSION_MISMATCH, and names the current version', async db => {
    await db.cells.init(RUN, 'c', 1)
    await db.cells.set(RUN, 'c', 2)
    for (const expected of [0, 1, 3]) {
      const { details } = await refused(db.cells.cas(RUN, 'c', expected, 'x'), 'VERSION_MISMATCH')
      expect(details).toMatchObject({ expected, actual: 2 })
    }
    expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 2, version: 2 })
  })

  suite.holds('P8: cas and transition of a missing cell are CELL_NOT_FOUND, and create none', async db => {
    await db.cells.init(RUN, 'deleted', 1)
    await db.cells.delete(RUN, 'deleted')
    for (const name of ['never', 'deleted']) {
      for (const version of [0, 1]) await refused(db.cells.cas(RUN, name, version, 1), 'CELL_NOT_FOUND')
      await refused(db.cells.transition(RUN, name, increment), 'CELL_NOT_FOUND')
    }
    expect(await db.cells.list(RUN)).toEqual([])
  })

  suite.holds('P8: transitionOrInit shows a missing cell as the initial value at version 0', async db => {
    const seen: CellState[] = []
    const step = (state: CellState): { value: number; result: string } => {
      seen.push(state)
      return { value: Number(state.value) + 1, result: 'r' }
    }
    expect(await db.cells.transitionOrInit(RUN, 'c', 41, step)).toEqual({
      result: 'r',
      value: 42,
      version: 1,
    })
    expect(seen.at(-1)).toEqual({ value: 41, version: 0 })
    expect(await db.cells.transitionOrInit(RUN, 'c', 0, step)).toEqual({ result: 'r', value: 43, version: 2 })
    expect(seen.at(-1)).toMatchObject({ value: 42, version: 1 })
  })

  suite.holds(
    'P8: an error thrown by a transition function reaches the caller unchanged, and nothing is written',
    async db => {
      await db.cells.init(RUN, 'c', 1)
      const mine = new Error('mine')
      const attempt = db.cells.transition(RUN, 'c', () => {
        throw mine
      })
      await expect(attempt).rejects.toBe(mine)
      expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 1, version: 1 })
    },
  )

  suite.holds('P8: a transition function that is async or returns no value is refused', async db => {
    await db.cells.init(RUN, 'c', 1)
    for (const answer of [
      Promise.resolve({ value: 1 }),
      undefined,
      null,
      5,
      {},
      { value: undefined, result: 1 },
    ]) {
      await refused(
        db.cells.transition(RUN, 'c', () => bad(answer)),
        'INVALID_ARGUMENT',
      )
    }
    expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 1, version: 1 })
  })

  suite.holds('P8: exactly one of 64 concurrent inits of a cell wins', async db => {
    const { won, codes } = await outcomes(times(64, i => db.cells.init(RUN, 'c', i)))
    expect(won).toEqual([1])
    expect(codes).toEqual(times(63, () => 'CELL_EXISTS'))
    expect((await db.cells.read(RUN, 'c'))!.version).toBe(1)
  })

  suite.holds(
    'P8: exactly one of 64 concurrent cas calls with the same version wins, and its value stays',
    async db => {
      await db.cells.init(RUN, 'c', -1)
      const attempts = times(64, async i => [i, await db.cells.cas(RUN, 'c', 1, i)] as const)
      const { won, codes } = await outcomes(attempts)
      expect(won).toHaveLength(1)
      expect(codes).toEqual(times(63, () => 'VERSION_MISMATCH'))
      const [value, version] = won[0]
      expect(version).toBe(2)
      expect(await db.cells.read(RUN, 'c')).toMatchObject({ value, version: 2 })
    },
  )

  suite.holds(
    'P8: 1,000 concurrent transitions of one counter end at 1,000, each with a result of its own',
    async db => {
      await db.cells.init(RUN, 'c', 0)
      const steps = await Promise.all(times(1_000, () => db.cells.transition(RUN, 'c', increment)))
      expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 1_000, version: 1_001 })
      expect(steps.map(({ result }) => result).sort((a, b) => a - b)).toEqual(times(1_000, i => i))
      for (const { result, value, version } of steps)
        expect([value, version]).toEqual([result + 1, result + 2])
    },
  )

  suite.holds('P8: concurrent transitionOrInits of a missing cell are all counted', async db => {
    await Promise.all(times(100, () => db.cells.transitionOrInit(RUN, 'c', 0, increment)))
    expect(await db.cells.read(RUN, 'c')).toMatchObject({ value: 100, version: 100 })
  })

  suite.holds('returned values are frozen, and so is the value that a transition function gets', async db => {
    await db.cells.init(RUN, 'c', { a: [] })
    const result = await db.cells.transition(RUN, 'c', state => {
      expectFrozen(state)
      return { value: state.value, result: undefined }
    })
    expectFrozen(result)
    expectFrozen(await db.cells.read(RUN, 'c'))
    expectFrozen(await db.cells.list(RUN))
    await db.cells.transitionOrInit(RUN, 'd', { a: [] }, state => {
      expectFrozen(state)
      return { value: 1, result: undefined }
    })
  })

  suite.holdsInTime('updatedAt is the time of the last change of the cell', async (db, clock) => {
    const start = clock.now()
    await db.cells.init(RUN, 'c', 1)
    clock.advance(5)
    expect((await db.cells.read(RUN, 'c'))!.updatedAt).toBe(start)
    await db.cells.set(RUN, 'c', 2)
    expect((await db.cells.read(RUN, 'c'))!.updatedAt).toBe(start + 5)
  })
}
