import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type StepState, Steps } from './steps.ts'

const stateOf = (stepId: string, position: number): StepState => ({
  stepId,
  position,
  status: 'RUNNING',
  logicalAttemptId: 1,
  engineAttemptId: 1,
  startedAt: undefined,
  completedAt: undefined,
  error: undefined,
  attempts: [],
})

test('steps keep their order and are found by any id', () => {
  const ids = fc.uniqueArray(fc.string({ unit: 'binary', maxLength: 12 }), { maxLength: 100 })
  fc.assert(
    fc.property(ids, ids, (added, others) => {
      const steps = new Steps()
      for (const [position, id] of added.entries()) {
        expect(steps.get(id)).toBeUndefined()
        steps.add(stateOf(id, position))
      }
      expect(steps.all.map(({ stepId }) => stepId)).toEqual(added)
      for (const [position, id] of added.entries()) expect(steps.get(id)).toBe(steps.all[position])
      for (const id of others) expect(steps.get(id)?.stepId).toBe(added.includes(id) ? id : undefined)
    }),
  )
})

test('finds each of a hundred thousand steps, and no other id', () => {
  const steps = new Steps()
  for (let n = 0; n < 100_000; n++) steps.add(stateOf(`step-${n}`, n))
  for (let n = 0; n < 100_000; n++) expect(steps.get(`step-${n}`)?.position).toBe(n)
  for (let n = 100_000; n < 200_000; n++) expect(steps.get(`step-${n}`)).toBeUndefined()
})
