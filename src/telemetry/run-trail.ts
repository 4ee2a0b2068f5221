import type { ByteString } from '../core/bytes.ts'
import { recordsOf } from '../engine/indexes.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Range, Reader } from '../engine/storage.ts'
import type { RunRecord } from './run-record.ts'
import { BY_PARENT, BY_RUN, recordOf, runsRange } from './stored-run.ts'

export interface RunTrail {
  readonly run: RunRecord
  /** All descendants in one list, by start_time; the earlier insert first where it is equal. */
  readonly children: readonly RunRecord[]
}

/** TD3: of several records with one run_id the newest is the run. Undefined if there is none. */
export async function readTrail(
  reader: Reader,
  scope: ByteString,
  runId: string,
): Promise<RunTrail | undefined> {
  const newest = await reader.scan({ ...runsRange(scope, BY_RUN, runId), reverse: true, limit: 1 })
  const [own] = await recordsOf(
    reader,
    newestTree(scope),
    newest.map(({ key }) => key),
  )
  if (own === undefined) return undefined
  const below = new Map<ByteString, RunRecord>()
  // Runs may name each other as parents: each is asked for its children once.
  const asked = new Set([runId])
  for (const parent of asked) {
    for (const entry of await childrenOf(reader, runsRange(scope, BY_PARENT, parent))) {
      if (entry.key === own.key) continue
      const child = recordOf(entry)
      below.set(entry.key, child)
      asked.add(child.run_id)
    }
  }
  // A record's key begins with the number of its insert.
  const children = [...below].sort(
    ([a, first], [b, second]) => compare(first.start_time, second.start_time) || compare(a, b),
  )
  return { run: recordOf(own), children: children.map(([, child]) => child) }
}

function newestTree(scope: ByteString): Range {
  return runsRange(scope, BY_RUN, '')
}

async function childrenOf(reader: Reader, range: Range): Promise<Entry[]> {
  const found: Entry[] = []
  for await (const page of pages(reader, range)) {
    found.push(
      ...(await recordsOf(
        reader,
        range,
        page.map(({ key }) => key),
      )),
    )
  }
  return found
}

/** Times in UTC with milliseconds are in order as texts, ids too. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
