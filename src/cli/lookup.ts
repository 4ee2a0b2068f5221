import { AnnalsError, type Run } from '../index.ts'
import { nearest } from './nearest.ts'
import type { Source } from './source.ts'

/** Runs whose ids are looked at to guess which one was meant. */
const GUESSED_FROM = 2_000

/** What there is of a run: an entry in the index, records in the ledger, events in its own log. */
export interface RunParts {
  readonly run: Run | undefined
  readonly isInLedger: boolean
  /** Whether it has a log of its own (`db.events`). */
  readonly hasEvents: boolean
}

/** `RUN_NOT_FOUND`, with those that were meant, if there is nothing of the run anywhere. */
export async function lookUpRun(source: Source, runId: string): Promise<RunParts> {
  const [run, [first], hasEvents] = await Promise.all([
    source.runs.get(runId),
    source.ledger.fetchEvents(runId, { limit: 1 }),
    source.events.exists(runId),
  ])
  if (run === undefined && first === undefined && !hasEvents) throw await unknownRun(source, runId)
  return { run, isInLedger: first !== undefined, hasEvents }
}

async function unknownRun(source: Source, runId: string): Promise<AnnalsError> {
  const known = await source.runs.query({ includeArchived: true, limit: GUESSED_FROM })
  const meant = nearest(
    runId,
    known.map(run => run.runId),
  )
  const guess =
    meant.length > 0
      ? `did you mean ${meant.map(id => JSON.stringify(id)).join(' or ')}?`
      : known.length === 0
        ? 'there are none at all; is it another store (--data, --postgres, --server) or tenant (--tenant)?'
        : '`annals runs` lists those that there are'
  return new AnnalsError('RUN_NOT_FOUND', `there is no run ${JSON.stringify(runId)}: ${guess}`, { runId })
}
