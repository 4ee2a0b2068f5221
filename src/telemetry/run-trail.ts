import type { ByteString } from '../core/bytes.ts'
import { idOfIndexKey } from '../engine/indexes.ts'
import { pages } from '../engine/pages.ts'
import type { Reader } from '../engine/storage.ts'
import { recordsInTurn } from './records-in-turn.ts'
import { BY_PARENT, BY_RUN, runsRange } from './stored-run.ts'

/** The records of a trail. */
export interface TrailIds {
  readonly run: ByteString
  /** All descendants by `start_time`; of equal times the earlier insert first. */
  readonly children: readonly ByteString[]
}

/** TD3: finds a run and its descendants. Of several records with one `run_id` the newest is the run. */
export async function findTrail(
  reader: Reader,
  scope: ByteString,
  runId: string,
): Promise<TrailIds | undefined> {
  const [newest] = await reader.scan({ ...runsRange(scope, BY_RUN, runId), reverse: true, limit: 1 })
  const own = newest === undefined ? undefined : idOfIndexKey(newest.key)
  if (own === undefined) return undefined
  const startOf = new Map<ByteString, string>()
  // Runs may be each other's parents, so the children of each are read once.
  const asked = new Set([runId])
  for (const parent of asked) {
    for await (const page of pages(reader, runsRange(scope, BY_PARENT, parent))) {
      const ids = page.map(({ key }) => idOfIndexKey(key)).filter(id => id !== undefined)
      for await (const { id, run } of recordsInTurn(reader, scope, ids)) {
        if (id === own) continue
        startOf.set(id, run.start_time)
        asked.add(run.run_id)
      }
    }
  }
  // An id starts with the number of its insert.
  const children = [...startOf].sort(([a, first], [b, second]) => compare(first, second) || compare(a, b))
  return { run: own, children: children.map(([id]) => id) }
}

/** Times in UTC with milliseconds sort as texts. So do ids. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
