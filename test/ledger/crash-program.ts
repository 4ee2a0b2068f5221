import { setImmediate as turn } from 'node:timers/promises'
import { vi } from 'vitest'
import { canonicalJson } from '../../src/core/canonical-json.ts'
import {
  type Annals,
  type AnnalsError,
  type AppendResult,
  createProducer,
  type ErrorDetails,
  type EventIdRegistry,
  type FeedItem,
  type Producer,
  type RunEventRecord,
  type RunEventWrite,
  type RunStateStore,
  reduce,
} from '../../src/index.ts'
import { Random } from '../../src/testing/random.ts'
import { newEvent, PLAN } from './run-event.ts'

/**
 * A program that works on four runs at once and can run again from its beginning
 * after any crash: one run has a lease, one has invalid events, and two share a
 * batch. A reader follows all runs and stores its cursor.
 */

/** The answers and records that the outside world has seen. They must still be there after any crash. */
export class Known {
  /** Whether invalid events are refused at the append (Layer 2), instead of stored and reported later. */
  readonly validates: boolean
  readonly answers: (readonly [event: RunEventWrite, answer: AppendResult])[] = []
  readonly delivered: FeedItem[] = []
  /** The details of each refusal, by idempotency key. */
  readonly refusals: Map<string, ErrorDetails> = new Map()

  constructor(validates: boolean) {
    this.validates = validates
  }

  copy(): Known {
    const copy = new Known(this.validates)
    copy.answers.push(...this.answers)
    copy.delivered.push(...this.delivered)
    for (const [key, details] of this.refusals) copy.refusals.set(key, details)
    return copy
  }

  /** The records that the run must have in the end. */
  expected(runId: string): readonly string[] {
    return EXPECTED[runId].filter(name => !this.validates || !INVALID.includes(`${runId} ${name}`))
  }
}

/** The phase of an append in which the machine crashes. */
export type Phase = 'registry write' | 'between registry and append' | 'append' | 'between append and answer'

export interface Hooks {
  /** Called when a phase begins. An image that is taken here is a crash in this phase. */
  readonly phase: (phase: Phase, runId: string) => void
  /** Called when the event is appended or refused. */
  readonly done: (runId: string) => void
  /** Called before and after the background projector works. */
  readonly projecting: (isProjecting: boolean) => void
}

/** The records of each run in the end, as type, step and attempt. */
const EXPECTED: Readonly<Record<string, readonly string[]>> = {
  leased: [
    'RunQueued 1',
    'RunStarted 1',
    'StepStarted fetch 1',
    'StepFailed fetch 1',
    'StepStarted fetch 2',
    'RunPaused 1',
    'StepCompleted fetch 2',
    'RunResumed 1',
    'RunPaused 2',
    'RunResumed 2',
    'RunCompleted 1',
  ],
  noisy: [
    'RunStarted 1',
    'StepStarted parse 1',
    'RunResumed 7',
    'StepSkipped print 1',
    'Progress parse 1',
    'StepCompleted ghost 1',
    'StepCompleted parse 1',
    'RunFailed 1',
  ],
  'batch-1': ['RunStarted 1', 'StepStarted load 1', 'RunCancelled 1'],
  'batch-2': ['RunStarted 1', 'RunPaused 1', 'RunStarted 2'],
}
const INVALID: readonly string[] = [
  'noisy RunResumed 7',
  'noisy StepCompleted ghost 1',
  'batch-2 RunStarted 2',
]
const INDEXED: Readonly<Record<string, string>> = {
  leased: 'Completed',
  noisy: 'Failed',
  'batch-1': 'Cancelled',
  'batch-2': 'Paused',
}
const RUN_IDS = Object.keys(EXPECTED)
/** Longer than the projector's pause between two rounds. */
const PROJECTOR_PAUSE_MS = 105

/** Events that are sent without a producer. They are the same in each run, because their ids follow from a seed. */
function rawEvents(): Record<'resumed' | 'ghost' | 'restarted', RunEventWrite> & { batch: RunEventWrite[] } {
  const random = new Random(1)
  const started = newEvent(random, { runId: 'batch-1', eventType: 'RunStarted' })
  return {
    resumed: newEvent(random, { runId: 'noisy', eventType: 'RunResumed', logicalAttemptId: 7 }),
    ghost: newEvent(random, { runId: 'noisy', eventType: 'StepCompleted', stepId: 'ghost' }),
    restarted: newEvent(random, { runId: 'batch-2', eventType: 'RunStarted', logicalAttemptId: 2 }),
    batch: [
      started,
      newEvent(random, { runId: 'batch-2', eventType: 'RunStarted' }),
      started,
      newEvent(random, { runId: 'batch-1', eventType: 'StepStarted', stepId: 'load', payload: { n: 1 } }),
      newEvent(random, { runId: 'batch-2', eventType: 'RunPaused' }),
      newEvent(random, { runId: 'batch-1', eventType: 'RunCancelled' }),
    ],
  }
}

/** Runs the program to its end. `clock` is the producer's clock, for `emittedAt`. */
export async function runLedgerProgram(
  db: Annals,
  known: Known,
  clock: () => number,
  hooks: Hooks,
): Promise<void> {
  const { ledger } = db
  const raw = rawEvents()
  const answered = (event: RunEventWrite, answer: AppendResult): void => {
    known.answers.push([event, answer])
    hooks.done(event.runId)
  }
  const appendInvalid = async (event: RunEventWrite): Promise<void> => {
    if (!known.validates) return answered(event, await store.appendEvent(event))
    const { code, details } = await refusalOf(store.appendEvent(event))
    check(code === 'INVALID_TRANSITION', `an invalid event is refused with ${code}`)
    // L26: a retry gets the same refusal, even after a crash.
    same(known.refusals.get(event.idempotencyKey) ?? details, details, 'the refusal')
    known.refusals.set(event.idempotencyKey, details ?? {})
    hooks.done(event.runId)
  }
  const store: Pick<RunStateStore, 'appendEvent' | 'fetchEvents'> = {
    fetchEvents: (runId, options) => ledger.fetchEvents(runId, options),
    async appendEvent(event, options) {
      hooks.phase('append', event.runId)
      const answer = await ledger.appendEvent(event, options)
      hooks.phase('between append and answer', event.runId)
      return answer
    },
  }
  const registry: EventIdRegistry = {
    async claim(runId, key, eventId) {
      hooks.phase('registry write', runId)
      const claimed = await ledger.registry.claim(runId, key, eventId)
      hooks.phase('between registry and append', runId)
      return claimed
    },
    adopt: () =>
      Promise.reject(new Error('the ledger knows an event under an id that the registry never had')),
  }
  const producer = (runId: string, epoch?: number): Producer => {
    const made = createProducer({
      ...PLAN,
      store: {
        ...store,
        appendEvent: async (event, options) => {
          const answer = await store.appendEvent(event, options)
          // From here on the producer's caller may know the answer.
          answered(event, answer)
          return answer
        },
      },
      registry,
      runId,
      replay: true,
      clock,
      ...(epoch === undefined ? {} : { epoch }),
    })
    return made
  }
  const background = async (): Promise<void> => {
    hooks.projecting(true)
    await vi.advanceTimersByTimeAsync(PROJECTOR_PAUSE_MS)
    await turn()
    hooks.projecting(false)
  }

  const following = new AbortController()
  const reader = follow(db, known, following.signal)
  const { epoch } = await ledger.acquireLease('leased', { owner: 'worker', ttlMs: 3_600_000 })
  const leased = producer('leased', epoch)
  const noisy = producer('noisy')
  await Promise.all([
    (async () => {
      await leased.runQueued()
      await leased.runStarted({ trigger: 'night' })
      await leased.stepStarted('fetch')
      await leased.stepFailed('fetch', new Error('no route'))
    })(),
    (async () => {
      await noisy.runStarted()
      await noisy.stepStarted('parse')
      await appendInvalid(raw.resumed)
      await ledger.projectSnapshot('noisy')
    })(),
  ])
  await background()
  await Promise.all([
    (async () => {
      await leased.stepStarted('fetch')
      await leased.pause()
      await leased.stepCompleted('fetch', { rows: 7 })
      await refused(
        ledger.appendEvent(newEvent(new Random(2), { runId: 'leased', eventType: 'RunCancelled' })),
      )
      await leased.resume()
    })(),
    (async () => {
      await noisy.stepSkipped('print')
      await noisy.emit('Progress', { stepId: 'parse', payload: { percent: 50 } })
      await appendInvalid(raw.ghost)
    })(),
    (async () => {
      const answers = await ledger.appendEvents(raw.batch)
      for (const [i, answer] of answers.entries()) answered(raw.batch[i], answer)
      await appendInvalid(raw.restarted)
    })(),
  ])
  await background()
  await Promise.all([
    (async () => {
      await leased.pause()
      await leased.resume()
      await leased.runCompleted()
    })(),
    (async () => {
      await noisy.stepCompleted('parse')
      await noisy.runFailed(new Error('out of paper'))
    })(),
  ])
  await background()
  following.abort()
  await reader
}

async function follow(db: Annals, known: Known, signal: AbortSignal): Promise<void> {
  const cursor = known.delivered.at(-1)?.cursor
  const options = { signal, ...(cursor === undefined ? {} : { cursor }) }
  for await (const item of db.ledger.subscribeAll(options)) known.delivered.push(item)
}

async function refusalOf(append: Promise<AppendResult>): Promise<Pick<AnnalsError, 'code' | 'details'>> {
  return append.then(
    () => {
      throw new Error('an append that had to be refused was not')
    },
    (error: AnnalsError) => error,
  )
}

async function refused(append: Promise<AppendResult>): Promise<void> {
  const { code } = await refusalOf(append)
  check(code === 'WRITER_FENCED', `an append without the lease is refused with ${code}`)
}

/** Checks right after the recovery that everything the outside world has seen is still there. */
export async function checkRecovered(db: Annals, known: Known): Promise<void> {
  const records = await recordsOf(db)
  checkAnswers(known, records)
  const batch = ['batch-1', 'batch-2'].flatMap(runId => records.get(runId) ?? [])
  const whole = ['batch-1', 'batch-2'].flatMap(runId => known.expected(runId)).length
  check(
    [0, 5, whole].includes(batch.length),
    `the batch of 5 is stored wholly or not at all, but there are ${batch.length} records`,
  )
  for (const [runId, found] of records) {
    if (found.length === 0) continue
    check((await db.ledger.verifyRun(runId)).isValid, `${runId} can be verified`)
    // The index entry is made with the first event; its status may lag.
    check((await db.runs.get(runId)) !== undefined, `${runId} is in the index of runs`)
  }
}

/** Checks that each record is stored once, and that all derived data matches the records. */
export async function checkFinished(db: Annals, known: Known): Promise<void> {
  const { ledger } = db
  const byRun = await recordsOf(db)
  const all = [...byRun.values()].flat()
  const total = RUN_IDS.flatMap(runId => known.expected(runId)).length
  check(all.length === total, `${all.length} records instead of ${total}`)
  checkAnswers(known, byRun)
  for (const [runId, records] of byRun) {
    same(records.map(nameOf), known.expected(runId), `the records of ${runId}`)
    same(
      records.map(({ runSeq }) => runSeq),
      records.map((_, i) => i + 1),
      `the sequence of ${runId}`,
    )
    const times = records.map(({ persistedAt }) => persistedAt)
    same(times, [...times].sort(), `the times of ${runId}`)
    const snapshot = records.reduce<ReturnType<typeof reduce> | null>(reduce, null)
    same(await ledger.projectSnapshot(runId), snapshot, `the snapshot of ${runId}`)
    same(await ledger.getSnapshot(runId), snapshot, `the stored snapshot of ${runId}`)
    same(await ledger.replaySnapshot(runId), snapshot, `the replayed snapshot of ${runId}`)
    same(await ledger.verifyRun(runId), { isValid: true, events: records.length }, `verifyRun of ${runId}`)
    same((await db.runs.get(runId))?.status, INDEXED[runId], `the status of ${runId} in the index`)
  }
  await checkRegistry(db, byRun)
  await checkAlerts(db, all, known.validates ? [] : INVALID)
  await checkFeed(db, known, all)
  await checkAudit(db, all)
  check(ledger.stats().projector.error === undefined, 'the projector has no error')
}

/** Checks that the registry returns the record's event id for each key. */
async function checkRegistry(
  db: Annals,
  byRun: ReadonlyMap<string, readonly RunEventRecord[]>,
): Promise<void> {
  const another = newEvent(new Random(3), { runId: 'x', eventType: 'x' }).eventId
  const raw = rawEvents()
  const unclaimed = new Set([raw.resumed.eventId, raw.ghost.eventId])
  for (const runId of ['leased', 'noisy']) {
    for (const { idempotencyKey, eventId } of byRun.get(runId) ?? []) {
      if (unclaimed.has(eventId)) continue
      same(await db.ledger.registry.claim(runId, idempotencyKey, another), eventId, 'the id in the registry')
    }
  }
}

async function checkAlerts(
  db: Annals,
  all: readonly RunEventRecord[],
  invalid: readonly string[],
): Promise<void> {
  const alerts = await db.ledger.alerts()
  const names = alerts.map(({ runId, runSeq, eventId }) => {
    const record = all.find(found => found.runId === runId && found.runSeq === runSeq)
    check(record?.eventId === eventId, 'an alert names its record')
    return `${runId} ${nameOf(record as RunEventRecord)}`
  })
  same([...names].sort(), [...invalid].sort(), 'the alerts')
  const perRun = await Promise.all(RUN_IDS.map(runId => db.ledger.alerts({ runId })))
  same(perRun.flat().length, invalid.length, 'the alerts of the runs')
}

/** Checks that the reader got each record once over all restarts, in the order of the feed. */
async function checkFeed(db: Annals, known: Known, all: readonly RunEventRecord[]): Promise<void> {
  same(known.delivered.length, all.length, 'the number of records delivered over all restarts')
  const fresh: FeedItem[] = []
  for await (const item of db.ledger.subscribeAll()) {
    if (fresh.push(item) === all.length) break
  }
  same(known.delivered, fresh, 'the items delivered over all restarts')
  same(new Set(fresh.map(({ record }) => `${record.runId} ${record.runSeq}`)).size, all.length, 'the feed')
}

async function checkAudit(db: Annals, all: readonly RunEventRecord[]): Promise<void> {
  const ordered = [...all].sort(
    (a, b) => compare(a.persistedAt, b.persistedAt) || compare(a.runId, b.runId) || a.runSeq - b.runSeq,
  )
  const window = { from: 0, to: '2100-01-01T00:00:00Z' }
  same(await collect(db.ledger.audit(window)), ordered, 'the audit')
  const middle = Math.floor(ordered.length / 2)
  const rest = await collect(db.ledger.audit({ ...window, after: ordered[middle] }))
  same(rest, ordered.slice(middle + 1), 'the audit after its middle')
}

async function recordsOf(db: Annals): Promise<Map<string, readonly RunEventRecord[]>> {
  const found = await Promise.all(RUN_IDS.map(runId => db.ledger.fetchEvents(runId)))
  return new Map(RUN_IDS.map((runId, i) => [runId, found[i]]))
}

function checkAnswers(
  { answers, delivered }: Known,
  byRun: ReadonlyMap<string, readonly RunEventRecord[]>,
): void {
  for (const [event, answer] of answers) {
    const record = byRun.get(event.runId)?.[answer.runSeq - 1]
    const isThere =
      record?.idempotencyKey === event.idempotencyKey &&
      record.eventId === answer.eventId &&
      record.persistedAt === answer.persistedAt &&
      event.eventId === answer.eventId
    check(isThere, `answered: ${JSON.stringify([event, answer])}, found: ${JSON.stringify(record)}`)
  }
  for (const { record } of delivered)
    same(byRun.get(record.runId)?.[record.runSeq - 1], record, 'a delivered record')
}

function nameOf({ eventType, stepId, logicalAttemptId }: RunEventRecord): string {
  return `${eventType}${stepId === undefined ? '' : ` ${stepId}`} ${logicalAttemptId}`
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

/** Compares the canonical JSON. */
function same(found: unknown, expected: unknown, what: string): void {
  const [a, b] = [canonicalJson(found ?? null), canonicalJson(expected ?? null)]
  if (a !== b) throw new Error(`${what}: found ${a}, expected ${b}`)
}

function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(`does not hold: ${what}`)
}
