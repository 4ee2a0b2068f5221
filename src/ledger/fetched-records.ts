import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { mapInSlices } from '../core/slices.ts'
import { parseLogEntry } from '../engine/log.ts'
import { pages } from '../engine/pages.ts'
import type { Entry } from '../engine/storage.ts'
import type { RunName } from '../primitives/run-scopes.ts'
import type { LedgerContext } from './context.ts'
import type { RunEventRecord } from './run-events.ts'
import { LOG, recordOf } from './stored.ts'

/** The records of one run that are there, page by page. */
export async function* recordPages(
  { database, scopes }: LedgerContext,
  name: RunName,
  afterSeq: number,
): AsyncGenerator<readonly RunEventRecord[], void, void> {
  const scope = await scopes.find(database, name)
  let lastHash: ByteString | undefined
  for await (const page of pages(database, { scope, tag: LOG, from: u64(afterSeq) })) {
    // Between two pages the run may have been deleted, and another have begun under its id.
    if (lastHash !== undefined && parseLogEntry(page[0]).prevHash !== lastHash) throw deleted(name.runId)
    lastHash = parseLogEntry(page[page.length - 1]).hash
    yield await mapInSlices(page, recordOf)
  }
}

/** All records of one run behind a sequence. */
export async function allRecords(
  context: LedgerContext,
  name: RunName,
  afterSeq: number,
): Promise<RunEventRecord[]> {
  const records: RunEventRecord[] = []
  // Not push(...page): a page may have more items than a call may have arguments.
  for await (const page of recordPages(context, name, afterSeq)) for (const one of page) records.push(one)
  return records
}

/** The first records of one run behind a sequence, so many at most. */
export async function firstRecords(
  { database, scopes }: LedgerContext,
  name: RunName,
  afterSeq: number,
  limit: number,
): Promise<RunEventRecord[]> {
  const scan = (scope: ByteString): Promise<readonly Entry[]> =>
    database.scan({ scope, tag: LOG, from: u64(afterSeq), limit })
  const guess = scopes.guess(name)
  // At once, so that on a server both are one round trip.
  const [scope, guessed] = await Promise.all([scopes.find(database, name), scan(guess)])
  return mapInSlices(scope === guess ? guessed : await scan(scope), recordOf)
}

/** Refuses to go on with the records of a run that another run has replaced. */
export function deleted(runId: string): AnnalsError {
  const message = `run ${JSON.stringify(runId)} was deleted while it was read`
  return new AnnalsError('EVENT_CHAIN_BROKEN', message, { runId })
}
