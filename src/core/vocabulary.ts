/**
 * The words that people see on the command line and on the pages. Each part of the API has its own names for a status, and
 * keeps them: programs that read JSON depend on them. People see one word for each. docs/vocabulary.md has the same table.
 */

/** How a status is coloured. */
export type Tone = 'good' | 'bad' | 'busy' | 'waiting' | 'neutral'

export interface StatusWord {
  /** The word that people see. */
  readonly word: string
  readonly tone: Tone
  /** `Run.status` in the run index. */
  readonly run?: string
  /** `RunSnapshot.status` in the ledger. */
  readonly snapshot?: string
  /** `StepSnapshot.status` in the ledger. */
  readonly step?: string
  /** `LaunchResult.status`. */
  readonly launch?: string
  /** The terminal states that a launch has by default. */
  readonly launchState?: string
  /** `TelemetryRun.status`. */
  readonly telemetry?: string
}

export const STATUS_WORDS: readonly StatusWord[] = [
  { word: 'Pending', tone: 'neutral', snapshot: 'PENDING', step: 'PENDING' },
  {
    word: 'Running',
    tone: 'busy',
    run: 'Active',
    snapshot: 'RUNNING',
    step: 'RUNNING',
    telemetry: 'running',
  },
  { word: 'Paused', tone: 'waiting', run: 'Paused', snapshot: 'PAUSED' },
  {
    word: 'Completed',
    tone: 'good',
    run: 'Completed',
    snapshot: 'COMPLETED',
    step: 'SUCCESS',
    launch: 'completed',
    launchState: 'DONE',
    telemetry: 'success',
  },
  {
    word: 'Failed',
    tone: 'bad',
    run: 'Failed',
    snapshot: 'FAILED',
    step: 'FAILED',
    launch: 'failed',
    launchState: 'FAILED',
    telemetry: 'failure',
  },
  {
    word: 'Cancelled',
    tone: 'neutral',
    run: 'Cancelled',
    snapshot: 'CANCELLED',
    launch: 'cancelled',
    launchState: 'CANCELLED',
    telemetry: 'cancelled',
  },
  { word: 'Skipped', tone: 'neutral', step: 'SKIPPED' },
  { word: 'Archived', tone: 'neutral', run: 'Archived' },
  { word: 'Stopped', tone: 'waiting', launch: 'stopped' },
  { word: 'Partial', tone: 'waiting', telemetry: 'partial' },
  { word: 'Timed out', tone: 'bad', telemetry: 'timeout' },
]

const BY_NAME: ReadonlyMap<string, StatusWord> = new Map(
  STATUS_WORDS.flatMap(status => {
    const { run, snapshot, step, launch, launchState, telemetry } = status
    const names = [run, snapshot, step, launch, launchState, telemetry]
    return names.flatMap(name => (name === undefined ? [] : [[name, status] as const]))
  }),
)

/** The word and tone for a status that any part of the API names. A name that no part has stays as it is. */
export function statusWordOf(name: string): Pick<StatusWord, 'word' | 'tone'> {
  return BY_NAME.get(name) ?? { word: name, tone: 'neutral' }
}

/** Verdicts of a verification. A hash chain shows that data agree with themselves; it does not show who wrote them. */
export const VERDICT = { good: 'consistent', bad: 'CHANGED' } as const

const TIME_MAX_MS = 8.64e15

/** A time in UTC, as RFC 3339 with milliseconds: the format of the API. Numbers that are no date stay numbers. */
export function timeText(ms: number): string {
  return Number.isFinite(ms) && Math.abs(ms) <= TIME_MAX_MS ? new Date(ms).toISOString() : `${ms} ms`
}

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

export function durationText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < MINUTE_MS) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min ${Math.round((ms % MINUTE_MS) / 1_000)} s`
  if (ms >= 2 * DAY_MS) return `${Math.floor(ms / DAY_MS)} d ${Math.floor((ms % DAY_MS) / HOUR_MS)} h`
  return `${Math.floor(ms / HOUR_MS)} h ${Math.round((ms % HOUR_MS) / MINUTE_MS)} min`
}

/** `1 event`, `1,203 events`. */
export function countText(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`
}
