import { AnnalsError, type Run } from '../index.ts'
import { nearest } from './nearest.ts'
import type { Source } from './source.ts'

/** How many run ids are compared with a misspelt one. */
const GUESSED_FROM = 2_000

/** Where a run was found. */
export interface RunParts {
  /** Its entry in the run index. */
  readonly run: Run | undefined
  readonly isInLedger: boolean
  /** Whether it has events in its own log (`db.events`). */
  readonly hasEvents: boolean
}

/** Throws `RUN_NOT_FOUND`, with similar ids, if the run is nowhere. */
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
  const similar = nearest(
    runId,
    known.map(run => run.runId),
  )
  const hint =
    similar.length > 0
      ? `did you mean ${similar.map(id => JSON.stringify(id)).join(' or ')}?`
      : known.length === 0
        ? 'this store has no runs; is it in another store (--data, --postgres, --server) or tenant (--tenant)?'
        : '`annals runs` lists the runs'
  return new AnnalsError('RUN_NOT_FOUND', `there is no run ${JSON.stringify(runId)}: ${hint}`, { runId })
}
