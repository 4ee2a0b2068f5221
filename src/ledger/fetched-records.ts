import { type ByteString, u64 } from '../core/bytes.ts'
import { deletedWhileRead } from '../core/errors.ts'
import { mapInSlices, valueBytes } from '../core/slices.ts'
import { parseLogEntry } from '../engine/log.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Range } from '../engine/storage.ts'
import type { RunName } from '../primitives/run-scopes.ts'
import type { LedgerContext } from './context.ts'
import type { RunEventRecord } from './run-events.ts'
import { LOG, recordOf } from './stored.ts'

/**
 * Yields the stored records of a run page by page. Throws if the run is deleted or replaced by another run between two
 * pages, so that the caller never mistakes a part of a run for all of it.
 */
export async function* recordPages(
  { database, scopes }: LedgerContext,
  name: RunName,
  afterSeq: number,
): AsyncGenerator<readonly RunEventRecord[], void, void> {
  const scope = await scopes.find(database, name)
  let last: { readonly key: ByteString; readonly hash: ByteString } | undefined
  const scan = async (range: Range): Promise<readonly Entry[]> => {
    const page = await database.scan(range)
    if (last === undefined) return page
    // Records that follow the last one prove that it is still there. If none follow, it is looked up.
    const isSame =
      page.length > 0
        ? parseLogEntry(page[0]).prevHash === last.hash
        : hashIn(await database.get(scope, LOG, last.key)) === last.hash
    if (!isSame) throw deletedWhileRead(name.runId)
    return page
  }
  for await (const page of pages({ scan }, { scope, tag: LOG, from: u64(afterSeq) })) {
    const entry = page[page.length - 1]
    last = { key: entry.key, hash: parseLogEntry(entry).hash }
    yield await mapInSlices(page, recordOf, valueBytes)
  }
}

function hashIn(entry: Entry | undefined): ByteString | undefined {
  return entry === undefined ? undefined : parseLogEntry(entry).hash
}

/** Returns all records of a run after a sequence number. */
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

/** Returns at most `limit` records of a run after a sequence number. */
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
  return mapInSlices(scope === guess ? guessed : await scan(scope), recordOf, valueBytes)
}
