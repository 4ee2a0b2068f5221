import { describe } from 'vitest'
import { testBadInput } from './annals-suite/bad-input.ts'
import { testCells } from './annals-suite/cells.ts'
import { testClosing } from './annals-suite/closing.ts'
import { testConcurrency } from './annals-suite/concurrency.ts'
import { testConflicts } from './annals-suite/conflicts.ts'
import { testDeletion } from './annals-suite/deletion.ts'
import { testEvents } from './annals-suite/events.ts'
import { testExpiry } from './annals-suite/expiry.ts'
import { testHostileNames } from './annals-suite/hostile-names.ts'
import { testIndices } from './annals-suite/indices.ts'
import { testIsolation } from './annals-suite/isolation.ts'
import { testKeyRanges } from './annals-suite/key-ranges.ts'
import { testKeyUpdates } from './annals-suite/key-updates.ts'
import { testKv } from './annals-suite/kv.ts'
import { testLimits } from './annals-suite/limits.ts'
import { testLive } from './annals-suite/live.ts'
import { testMachines } from './annals-suite/machines.ts'
import { testNamespaces } from './annals-suite/namespaces.ts'
import { testReopening } from './annals-suite/reopening.ts'
import { testRunQueries } from './annals-suite/run-queries.ts'
import { testRuns } from './annals-suite/runs.ts'
import { testSeveralScopes } from './annals-suite/several-scopes.ts'
import {
  type AnnalsSuiteOptions,
  type OpenAnnals,
  type OpenAnnalsOptions,
  type OpenedAnnals,
  Suite,
} from './annals-suite/suite.ts'
import { testTraces } from './annals-suite/traces.ts'
import { testTransactions } from './annals-suite/transactions.ts'
import { testValues } from './annals-suite/values.ts'

export type { AnnalsSuiteOptions, OpenAnnals, OpenAnnalsOptions, OpenedAnnals }

/**
 * Declares the conformance tests of a whole database, for vitest. Call it at the top level of a test file. `openDatabase`
 * must open a new, empty database, because each test gets its own. The tests use only the public API, so they apply to any
 * storage engine. The title of a test begins with the numbers of the rules that it proves.
 */
export function testAnnals(name: string, openDatabase: OpenAnnals, options: AnnalsSuiteOptions = {}): void {
  const suite = new Suite(openDatabase, options)
  // Each test has its own database, so the tests can run concurrently, which overlaps their waits for the disk.
  describe.concurrent(`annals: ${name}`, () => {
    describe('kv', () => testKv(suite))
    describe('key ranges', () => testKeyRanges(suite))
    describe('key updates', () => testKeyUpdates(suite))
    describe('expiry', () => testExpiry(suite))
    describe('values', () => testValues(suite))
    describe('events', () => testEvents(suite))
    describe('live', () => testLive(suite))
    describe('cells', () => testCells(suite))
    describe('machines', () => testMachines(suite))
    describe('traces', () => testTraces(suite))
    describe('runs', () => testRuns(suite))
    describe('run queries', () => testRunQueries(suite))
    describe('deletion', () => testDeletion(suite))
    describe('namespaces', () => testNamespaces(suite))
    describe('transactions', () => testTransactions(suite))
    describe('several scopes', () => testSeveralScopes(suite))
    describe('conflicts', () => testConflicts(suite))
    describe('concurrency', () => testConcurrency(suite))
    describe('isolation', () => testIsolation(suite))
    describe('hostile names', () => testHostileNames(suite))
    describe('limits', () => testLimits(suite))
    describe('bad input', () => testBadInput(suite))
    describe('indices', () => testIndices(suite))
    describe('closing', () => testClosing(suite))
    // vitest reports a group without tests as a failure.
    if (options.noReopen === undefined) describe('reopening', () => testReopening(suite))
  })
}
