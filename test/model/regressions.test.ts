import { expect, test } from 'vitest'
import { failureOf } from './campaign.ts'
import { REGRESSIONS } from './regressions.ts'

test.each(REGRESSIONS)('regression: the program that found that $found', async ({ program }) => {
  expect(await failureOf(program)).toBeUndefined()
})
