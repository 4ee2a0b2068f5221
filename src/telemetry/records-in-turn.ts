import type { ByteString } from '../core/bytes.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import type { Reader } from '../engine/storage.ts'
import type { RunRecord } from './run-record.ts'
import { recordOf, recordPlace } from './stored-run.ts'

export interface FoundRun {
  readonly id: ByteString
  readonly run: RunRecord
}

const COUNT_FIRST = 4
const COUNT_MAX = 256
const BYTES_AT_ONCE = 256 * 1024

/** Reads records in the order of the ids, few large ones or many small ones at a time, to limit memory. */
export async function* recordsInTurn(
  reader: Reader,
  scope: ByteString,
  ids: readonly ByteString[],
): AsyncGenerator<FoundRun, void, void> {
  let count = COUNT_FIRST
  for (let start = 0; start < ids.length; ) {
    const some = ids.slice(start, start + count)
    start += some.length
    const entries = await Promise.all(
      some.map(id => {
        const { tag, key } = recordPlace(scope, id)
        return reader.get(scope, tag, key)
      }),
    )
    let bytes = 0
    for (const [i, entry] of entries.entries()) {
      // An index entry without a record is left out. `verifyIndices` reports it.
      if (entry === undefined) continue
      if (isSliceOver()) await nextSlice()
      bytes += entry.value.length
      yield { id: some[i], run: recordOf(entry) }
    }
    count = bytes > BYTES_AT_ONCE ? Math.max(1, count >> 2) : Math.min(COUNT_MAX, count * 2)
  }
}
