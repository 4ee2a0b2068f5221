import { describe, expect, test } from 'vitest'
import { checkFence } from './lease.ts'

const NOW = 1_800_000_000_000
const HOUR_MS = 3_600_000

describe('a lease that is stored without ttlMs', () => {
  const held = { epoch: 1, owner: 'worker-1', expiresAt: NOW + HOUR_MS }
  const append = (clock: number) => () => checkFence('run-1', held, undefined, clock)

  test('LD16: refuses writers without an epoch until it expires', () => {
    for (const clock of [NOW, NOW + HOUR_MS - 1]) {
      expect(append(clock)).toThrow(expect.objectContaining({ code: 'WRITER_FENCED' }))
    }
    for (const clock of [NOW + HOUR_MS, NOW + 2 * HOUR_MS]) expect(append(clock)).not.toThrow()
  })
})
