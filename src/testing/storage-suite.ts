import { describe } from 'vitest'
import { testCapabilities } from './storage-suite/capabilities.ts'
import { testCommits } from './storage-suite/commits.ts'
import { testDrops } from './storage-suite/drops.ts'
import { testExpiry } from './storage-suite/expiry.ts'
import { testFeeds } from './storage-suite/feeds.ts'
import { testHeads } from './storage-suite/heads.ts'
import { testLifecycle } from './storage-suite/lifecycle.ts'
import { testLogs } from './storage-suite/logs.ts'
import { testOrder } from './storage-suite/order.ts'
import { testRandomPrograms } from './storage-suite/random-programs.ts'
import { testRangeUpdates } from './storage-suite/range-updates.ts'
import { testScopes } from './storage-suite/scopes.ts'
import { testSnapshots } from './storage-suite/snapshots.ts'
import { type OpenStorage, type StorageSuiteOptions, Suite } from './storage-suite/suite.ts'
import { testUpdates } from './storage-suite/updates.ts'
import { testValidation } from './storage-suite/validation.ts'

export type { OpenStorage, StorageSuiteOptions }

/**
 * Declares the conformance tests of a storage engine, for vitest. Call it at the top level of a test file. `open` must open a
 * new, empty storage, because each test gets its own. The title of a test begins with the numbers of the rules that it proves.
 */
export function testStorage(name: string, open: OpenStorage, options: StorageSuiteOptions = {}): void {
  const suite = new Suite(open, options)
  // Each test has its own storage, so the tests can run concurrently, which overlaps their waits for the disk.
  describe.concurrent(`storage: ${name}`, () => {
    describe('order', () => testOrder(suite))
    describe('commits', () => testCommits(suite))
    describe('validation', () => testValidation(suite))
    describe('logs', () => testLogs(suite))
    describe('heads', () => testHeads(suite))
    describe('feeds', () => testFeeds(suite))
    describe('drops', () => testDrops(suite))
    describe('scopes', () => testScopes(suite))
    describe('updates', () => testUpdates(suite))
    describe('updates of ranges', () => testRangeUpdates(suite))
    describe('snapshots', () => testSnapshots(suite))
    describe('expiry', () => testExpiry(suite))
    describe('lifecycle', () => testLifecycle(suite))
    describe('capabilities', () => testCapabilities(suite))
    describe('random programs', () => testRandomPrograms(suite))
  })
}
