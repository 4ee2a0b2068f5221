import { describe } from 'vitest'
import { testAlerts } from './ledger-suite/alerts.ts'
import { testAudit } from './ledger-suite/audit.ts'
import { testBatches } from './ledger-suite/batches.ts'
import { testEnvelope } from './ledger-suite/envelope.ts'
import { testFetching } from './ledger-suite/fetching.ts'
import { testHostileRuns } from './ledger-suite/hostile-runs.ts'
import { testIdempotency } from './ledger-suite/idempotency.ts'
import { testLayerTwo } from './ledger-suite/layer-two.ts'
import { testLeases } from './ledger-suite/leases.ts'
import { testMetrics } from './ledger-suite/metrics.ts'
import { testNamespaces } from './ledger-suite/namespaces.ts'
import { testOrderingAndTime } from './ledger-suite/ordering-and-time.ts'
import { testProducer } from './ledger-suite/producer.ts'
import { testProjection } from './ledger-suite/projection.ts'
import { testRunIndex } from './ledger-suite/run-index.ts'
import { testScope } from './ledger-suite/scope.ts'
import { testSubscriptions } from './ledger-suite/subscriptions.ts'
import {
  type LedgerApi,
  type LedgerNeed,
  LedgerSuite,
  type LedgerSuiteOptions,
  type OpenedLedger,
  type OpenLedger,
  type OpenLedgerOptions,
} from './ledger-suite/suite.ts'
import { testTransitions } from './ledger-suite/transitions.ts'
import { testVerification } from './ledger-suite/verification.ts'

export type { LedgerApi, LedgerNeed, LedgerSuiteOptions, OpenedLedger, OpenLedger, OpenLedgerOptions }

/**
 * Declares the conformance tests of a ledger, for vitest. Call it at the top level of a test file. `openLedger` must open a
 * new, empty ledger, because each test gets its own. The tests need only the methods of `LedgerApi`, so a client of a server
 * can be tested too. `without` leaves out the tests that need a capability that the ledger lacks. The title of a test begins
 * with the numbers of the rules that it proves.
 */
export function testLedger(name: string, openLedger: OpenLedger, options: LedgerSuiteOptions = {}): void {
  const suite = new LedgerSuite(openLedger, options)
  // Each test has its own ledger, so the tests can run concurrently, which overlaps their waits for the disk.
  describe.concurrent(`ledger: ${name}`, () => {
    describe('envelope', () => testEnvelope(suite))
    describe('idempotency', () => testIdempotency(suite))
    describe('ordering and time', () => testOrderingAndTime(suite))
    describe('scope', () => testScope(suite))
    describe('fetching', () => testFetching(suite))
    describe('transitions', () => testTransitions(suite))
    describe('projection', () => testProjection(suite))
    describe('hostile runs', () => testHostileRuns(suite))
    describe('alerts', () => testAlerts(suite))
    describe('layer two', () => testLayerTwo(suite))
    describe('leases', () => testLeases(suite))
    describe('batches', () => testBatches(suite))
    describe('subscriptions', () => testSubscriptions(suite))
    describe('audit', () => testAudit(suite))
    describe('verification', () => testVerification(suite))
    describe('producer', () => testProducer(suite))
    describe('run index', () => testRunIndex(suite))
    describe('namespaces', () => testNamespaces(suite))
    describe('metrics', () => testMetrics(suite))
  })
}
