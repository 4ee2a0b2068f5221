import { describe, expect, test } from 'vitest'
import { KeptRuns } from './kept-runs.ts'
import { RunProjection } from './run-projection.ts'

const STEPS = 9

function runOf(name: string, steps = STEPS): RunProjection {
  const run = new RunProjection(name, name)
  for (let n = 0; n < steps; n++) {
    run.restore({ stepId: `${n}`, status: 'RUNNING', logicalAttemptId: 1, engineAttemptId: 1, attempts: [] })
  }
  return run
}

/** Simulates a round of the projector over these runs. Returns the runs that were not cached. */
function look(kept: KeptRuns, names: readonly string[]): string[] {
  kept.beginLook()
  const read: string[] = []
  for (const name of names) {
    if (kept.use(name) === undefined) {
      read.push(name)
      kept.keep(runOf(name))
    }
    kept.forgetSome()
  }
  return read
}

describe('the cache of projections', () => {
  test('keeps most runs if all take turns and not all fit', () => {
    const kept = new KeptRuns(4 * (STEPS + 1))
    const names = ['a', 'b', 'c', 'd', 'e']
    expect(look(kept, names)).toEqual(names)
    for (let n = 0; n < 5; n++) expect(look(kept, names).length).toBeLessThanOrEqual(2)
  })

  test('evicts the least recently used runs first', () => {
    const kept = new KeptRuns(3 * (STEPS + 1))
    look(kept, ['old', 'a', 'b'])
    for (let n = 0; n < 3; n++) look(kept, ['a', 'b'])
    expect(look(kept, ['new'])).toEqual(['new'])
    expect(kept.get('old')).toBeUndefined()
    expect(look(kept, ['a', 'b', 'new'])).toEqual([])
  })

  test('keeps a run that is larger than the limit, but no other', () => {
    const kept = new KeptRuns(5)
    kept.keep(runOf('large', 20))
    kept.forgetSome()
    expect(kept.get('large')).toBeDefined()
    kept.keep(runOf('other', 20))
    kept.forgetSome()
    expect(['large', 'other'].filter(name => kept.get(name) !== undefined)).toHaveLength(1)
    kept.delete('large')
    expect(kept.get('large')).toBeUndefined()
  })
})
