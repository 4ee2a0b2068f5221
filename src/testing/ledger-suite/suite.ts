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

/** What every ledger can do, here or on the other side of a wire. */
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

/** A ledger for one test, with whatever else of its database can be reached. */
export interface OpenedLedger {
  readonly ledger: LedgerApi
  readonly runs?: Pick<Runs, 'get' | 'create' | 'complete' | 'query' | 'delete'>
  readonly registry?: EventIdRegistry
  /** The ledger of a handle that is bound to a tenant. */
  forTenant?(tenant: string): LedgerApi
  stats?(): Promise<LedgerStats>
  /** Closes the database and opens it again. */
  reopen?(): Promise<OpenedLedger>
  /** Closes whatever is open. */
  close(): Promise<void>
}

export interface OpenLedgerOptions {
  /** Milliseconds since 1970. */
  readonly clock?: () => number
  readonly validateTransitions?: boolean
  /** As `open` takes it. */
  readonly onAlert?: (alert: LedgerAlert) => unknown
}

/** Gives a new and empty ledger each time. */
export type OpenLedger = (options: OpenLedgerOptions) => Promise<OpenedLedger>

/** What not every ledger has, and a test may need. */
export type LedgerNeed =
  | 'clock'
  | 'reopen'
  | 'runs'
  | 'registry'
  | 'tenants'
  | 'stats'
  | 'layerTwo'
  | 'onAlert'

export interface LedgerSuiteOptions {
  /** What this ledger can't be given, and why. Properties that need it don't apply, and are not tested. */
  readonly without?: Readonly<Partial<Record<LedgerNeed, string>>>
}

type Test = (ledger: LedgerApi, given: Given) => Promise<void>

/** Declares tests, each with a ledger of its own that is closed in the end. */
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

  /** One test for each row; `%s` in the property is filled from it. */
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

/** What a test has asked for. */
export class Given {
  readonly ledger: LedgerApi
  readonly clock: SimulatedClock
  /** What `onAlert` was called with. */
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
  /** If it is set, `onAlert` fails with it, after the alert was taken. */
  failure: unknown
  /** If it is set, `onAlert` takes this long, after the alert was taken. */
  delay: (() => Promise<unknown>) | undefined
  #wake: () => void = () => {}

  readonly take = (alert: LedgerAlert): Promise<unknown> | undefined => {
    this.alerts.push(alert)
    this.#wake()
    if (this.failure !== undefined) throw this.failure
    return this.delay?.()
  }

  /** Resolves once there are so many. */
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

/** Appends them one after the other, and gives the records. */
export async function tell(
  ledger: LedgerApi,
  texts: readonly string[],
  fields: Partial<RunEventWrite> = {},
): Promise<readonly RunEventRecord[]> {
  for (const text of texts) await ledger.appendEvent(said(text, fields))
  return ledger.fetchEvents(fields.runId ?? RUN)
}

/** The first answer that will do; for what comes by itself, a little later. */
export async function eventually<T>(ask: () => Promise<T>, isThere: (answer: T) => boolean): Promise<T> {
  const deadline = performance.now() + 10_000
  for (;;) {
    const answer = await ask()
    if (isThere(answer)) return answer
    if (performance.now() > deadline) throw new Error(`still ${JSON.stringify(answer)}`)
    // Nobody tells when a lagging view has caught up: ask again in a turn of the event loop.
    await new Promise(resolve => setImmediate(resolve))
  }
}
