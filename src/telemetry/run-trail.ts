import type { ByteString } from '../core/bytes.ts'
import { idOfIndexKey } from '../engine/indexes.ts'
import { pages } from '../engine/pages.ts'
import type { Reader } from '../engine/storage.ts'
import { recordsInTurn } from './records-in-turn.ts'
import { BY_PARENT, BY_RUN, runsRange } from './stored-run.ts'

/** Which records a trail is made of. */
export interface TrailIds {
  readonly run: ByteString
  /** All descendants in one list, by start_time; the earlier insert first where it is equal. */
  readonly children: readonly ByteString[]
}

/** TD3: of several records with one run_id the newest is the run. Undefined if there is none. */
export async function findTrail(
  reader: Reader,
  scope: ByteString,
  runId: string,
): Promise<TrailIds | undefined> {
  const [newest] = await reader.scan({ ...runsRange(scope, BY_RUN, runId), reverse: true, limit: 1 })
  const own = newest === undefined ? undefined : idOfIndexKey(newest.key)
  if (own === undefined) return undefined
  const startOf = new Map<ByteString, string>()
  // Runs may name each other as parents: each is asked for its children once.
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
  // An id begins with the number of the insert.
  const children = [...startOf].sort(([a, first], [b, second]) => compare(first, second) || compare(a, b))
  return { run: own, children: children.map(([id]) => id) }
}

/** Times in UTC with milliseconds are in order as texts, ids too. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
