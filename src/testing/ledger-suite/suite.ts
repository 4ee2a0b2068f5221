import type {
  EventIdRegistry,
  Ledger,
  LedgerAlert,
  LedgerStats,
  RunEventRecord,
  RunEventWrite,
  Runs,
} from 'annals'
import { it } from 'vitest'
import { SimulatedClock } from '../simulated-clock.ts'
import { RUN, said } from './events.ts'

/** The methods that every ledger has, in this process or behind a server. */
export type LedgerApi = Pick<
  Ledger,
  | 'appendEvent'
  | 'appendEvents'
  | 'fetchEvents'
  | 'iterateEvents'
  | 'getSnapshot'
  | 'projectSnapshot'
  | 'verifyRun'
  | 'audit'
  | 'alerts'
  | 'subscribe'
  | 'subscribeAll'
  | 'subscribeAlerts'
  | 'acquireLease'
  | 'releaseLease'
>

/** A ledger for one test, and the other parts of its database that the test can reach. */
export interface OpenedLedger {
  /** The open, empty ledger. */
  readonly ledger: LedgerApi
  /** The run index of the same database. */
  readonly runs?: Pick<Runs, 'get' | 'create' | 'complete' | 'query' | 'delete'>
  /** The registry that claims event ids in the same database. */
  readonly registry?: EventIdRegistry
  /** The ledger of a handle bound to this tenant. */
  forTenant?(tenant: string): LedgerApi
  /** The counters of the ledger. */
  stats?(): Promise<LedgerStats>
  /** Closes the database and opens it again. */
  reopen?(): Promise<OpenedLedger>
  /** Closes the database. The test may have closed it already. */
  close(): Promise<void>
}

/** The options that a test needs for its ledger. */
export interface OpenLedgerOptions {
  /** The clock to use, in milliseconds since 1970. */
  readonly clock?: () => number
  /** Whether the ledger rejects invalid transitions, as in `open({ ledger: { validateTransitions } })`. */
  readonly validateTransitions?: boolean
  /** The listener for alerts, as in `open({ ledger: { onAlert } })`. */
  readonly onAlert?: (alert: LedgerAlert) => unknown
}

/** Opens a new, empty ledger for each call. */
export type OpenLedger = (options: OpenLedgerOptions) => Promise<OpenedLedger>

/** A capability that some tests need and not every ledger has. */
export type LedgerNeed =
  | 'clock'
  | 'reopen'
  | 'runs'
  | 'registry'
  | 'tenants'
  | 'stats'
  | 'layerTwo'
  | 'onAlert'

/** The settings of the ledger suite. */
export interface LedgerSuiteOptions {
  /** The capabilities that the ledger lacks, each with the reason. Tests that need one of them are left out. */
  readonly without?: Readonly<Partial<Record<LedgerNeed, string>>>
}

type Test = (ledger: LedgerApi, given: Given) => Promise<void>

/** Declares tests. Each test gets its own ledger, which is closed at the end. */
export class LedgerSuite {
  readonly #open: OpenLedger
  readonly #options: LedgerSuiteOptions

  constructor(open: OpenLedger, options: LedgerSuiteOptions) {
    this.#open = open
    this.#options = options
  }

  holds(property: string, test: Test, needs: readonly LedgerNeed[] = []): void {
    if (this.#applies(needs)) it(property, () => this.#run(needs, test))
  }

  /** Declares one test for each row. The strings of the row replace each `%s` in the title. */
  each<Row extends readonly string[]>(
    property: string,
    rows: readonly Row[],
    test: (ledger: LedgerApi, row: Row, given: Given) => Promise<void>,
    needs: readonly LedgerNeed[] = [],
  ): void {
    for (const row of rows) {
      let next = 0
      const name = property.replaceAll('%s', () => row[next++])
      this.holds(name, (ledger, given) => test(ledger, row, given), needs)
    }
  }

  #applies(needs: readonly LedgerNeed[]): boolean {
    const { without = {} } = this.#options
    return needs.every(need => without[need] === undefined)
  }

  async #run(needs: readonly LedgerNeed[], test: Test): Promise<void> {
    const clock = new SimulatedClock()
    const heard = new HeardAlerts()
    const opened = await this.#open({
      ...(needs.includes('onAlert') ? { onAlert: heard.take } : {}),
      ...(needs.includes('clock') ? { clock: clock.now } : {}),
      ...(needs.includes('layerTwo') ? { validateTransitions: true } : {}),
    })
    try {
      await test(opened.ledger, new Given(opened, clock, heard))
    } finally {
      await opened.close()
    }
  }
}

/** The parts of the database that a test needs. */
export class Given {
  readonly ledger: LedgerApi
  readonly clock: SimulatedClock
  /** The alerts that `onAlert` was called with. */
  readonly heard: HeardAlerts
  readonly #opened: OpenedLedger

  constructor(opened: OpenedLedger, clock: SimulatedClock, heard: HeardAlerts) {
    this.ledger = opened.ledger
    this.clock = clock
    this.heard = heard
    this.#opened = opened
  }

  get runs(): NonNullable<OpenedLedger['runs']> {
    return present('runs', this.#opened.runs)
  }

  get registry(): EventIdRegistry {
    return present('registry', this.#opened.registry)
  }

  forTenant(tenant: string): LedgerApi {
    return present('tenants', this.#opened.forTenant)(tenant)
  }

  stats(): Promise<LedgerStats> {
    return present('stats', this.#opened.stats)()
  }

  async reopen(): Promise<Given> {
    return new Given(await present('reopen', this.#opened.reopen)(), this.clock, this.heard)
  }
}

/** The alerts that `onAlert` was called with, in order. */
export class HeardAlerts {
  readonly alerts: LedgerAlert[] = []
  /** If set, `onAlert` throws this value after it has stored the alert. */
  failure: unknown
  /** If set, `onAlert` waits for this promise after it has stored the alert. */
  delay: (() => Promise<unknown>) | undefined
  #wake: () => void = () => {}

  readonly take = (alert: LedgerAlert): Promise<unknown> | undefined => {
    this.alerts.push(alert)
    this.#wake()
    if (this.failure !== undefined) throw this.failure
    return this.delay?.()
  }

  /** Resolves once there are `count` alerts. */
  async reach(count: number): Promise<readonly LedgerAlert[]> {
    while (this.alerts.length < count) {
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
    return this.alerts
  }
}

function present<T>(need: LedgerNeed, part: T | undefined): T {
  if (part === undefined) throw new Error(`the ledger neither gives ${need} nor says why it can't`)
  return part
}

/** Appends the events one after the other, and returns all records of the run. */
export async function tell(
  ledger: LedgerApi,
  texts: readonly string[],
  fields: Partial<RunEventWrite> = {},
): Promise<readonly RunEventRecord[]> {
  for (const text of texts) await ledger.appendEvent(said(text, fields))
  return ledger.fetchEvents(fields.runId ?? RUN)
}

/** Calls `ask` until `isThere` accepts the answer, for results that appear in the background. Fails after 10 seconds. */
export async function eventually<T>(ask: () => Promise<T>, isThere: (answer: T) => boolean): Promise<T> {
  const deadline = performance.now() + 10_000
  for (;;) {
    const answer = await ask()
    if (isThere(answer)) return answer
    if (performance.now() > deadline) throw new Error(`still ${JSON.stringify(answer)}`)
    // A lagging view sends no notification when it has caught up, so ask again in the next turn of the event loop.
    await new Promise(resolve => setImmediate(resolve))
  }
}
