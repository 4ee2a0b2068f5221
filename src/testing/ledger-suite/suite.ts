import { randomUUID } from 'node:crypto'
import { it } from 'vitest'
import {
  deriveIdempotencyKey,
  type EventIdRegistry,
  type Ledger,
  type LedgerStats,
  type RunEventRecord,
  type RunEventWrite,
  type Runs,
} from '../../index.ts'
import { SimulatedClock } from '../simulated-clock.ts'

/** What every ledger can do, here or on the other side of a wire. */
export type LedgerApi = Pick<
  Ledger,
  | 'appendEvent'
  | 'appendEvents'
  | 'fetchEvents'
  | 'getSnapshot'
  | 'projectSnapshot'
  | 'verifyRun'
  | 'audit'
  | 'alerts'
  | 'subscribe'
  | 'subscribeAll'
  | 'acquireLease'
>

/** A ledger for one test, with whatever else of its database can be reached. */
export interface OpenedLedger {
  readonly ledger: LedgerApi
  readonly runs?: Pick<Runs, 'get' | 'create' | 'query' | 'delete'>
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
}

/** Gives a new and empty ledger each time. */
export type OpenLedger = (options: OpenLedgerOptions) => Promise<OpenedLedger>

/** What not every ledger has, and a test may need. */
export type LedgerNeed = 'clock' | 'reopen' | 'runs' | 'registry' | 'tenants' | 'stats' | 'layerTwo'

export interface LedgerSuiteOptions {
  /** What this ledger can't be given, and why: the tests that need it are skipped, with this reason. */
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
    const reason = this.#whyNot(needs)
    // reason: the ledger says why, in the name
    if (reason !== undefined) it.skip(`${property} (skipped: ${reason})`)
    else it(property, () => this.#run(needs, test))
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

  #whyNot(needs: readonly LedgerNeed[]): string | undefined {
    const { without = {} } = this.#options
    const lacking = needs.find(need => without[need] !== undefined)
    return lacking === undefined ? undefined : without[lacking]
  }

  async #run(needs: readonly LedgerNeed[], test: Test): Promise<void> {
    const clock = new SimulatedClock()
    const opened = await this.#open({
      ...(needs.includes('clock') ? { clock: clock.now } : {}),
      ...(needs.includes('layerTwo') ? { validateTransitions: true } : {}),
    })
    try {
      await test(opened.ledger, new Given(opened, clock))
    } finally {
      await opened.close()
    }
  }
}

/** What a test has asked for. */
export class Given {
  readonly ledger: LedgerApi
  readonly clock: SimulatedClock
  readonly #opened: OpenedLedger

  constructor(opened: OpenedLedger, clock: SimulatedClock) {
    this.ledger = opened.ledger
    this.clock = clock
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
    return new Given(await present('reopen', this.#opened.reopen)(), this.clock)
  }
}

function present<T>(need: LedgerNeed, part: T | undefined): T {
  if (part === undefined) throw new Error(`the ledger neither gives ${need} nor says why it can't`)
  return part
}

/** The run that most tests write to. */
export const RUN = 'run-1'

export const RUN_EVENTS = [
  'RunQueued',
  'RunStarted',
  'RunPaused',
  'RunResumed',
  'RunCompleted',
  'RunFailed',
  'RunCancelled',
] as const
export const STEP_EVENTS = ['StepStarted', 'StepCompleted', 'StepFailed', 'StepSkipped'] as const

/** An event that fits, whatever is said of it; the key too, unless it is given. */
export function newEvent(fields: Partial<RunEventWrite> = {}): RunEventWrite {
  const event = {
    eventId: randomUUID(),
    eventType: 'RunStarted',
    emittedAt: '2025-06-15T15:06:40.000Z',
    runId: RUN,
    tenantId: 'acme',
    projectId: 'shop',
    environmentId: 'test',
    planId: 'plan',
    planVersion: '1',
    engineAttemptId: 1,
    logicalAttemptId: 1,
    ...fields,
  }
  return { idempotencyKey: deriveIdempotencyKey(event), ...event }
}

/** With a key of its own: another plan version makes it another event, and changes nothing else. */
export function probe(eventType: string, stepId?: string, logicalAttemptId = 1): RunEventWrite {
  const step = stepId === undefined ? {} : { stepId }
  return newEvent({ eventType, logicalAttemptId, planVersion: 'probe', ...step })
}

/** `RunStarted`, or `StepStarted fetch`, or `StepStarted fetch 2` with the attempt. */
export function said(text: string, fields: Partial<RunEventWrite> = {}): RunEventWrite {
  const [eventType, stepId, attempt] = text.split(' ')
  return newEvent({
    eventType,
    ...(stepId === undefined ? {} : { stepId }),
    logicalAttemptId: Number(attempt ?? 1),
    ...fields,
  })
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
