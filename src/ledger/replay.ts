import type { ByteString } from '../core/bytes.ts'
import { u64 } from '../core/bytes.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { pages } from '../engine/pages.ts'
import type { Reader } from '../engine/storage.ts'
import { FactReader } from './facts.ts'
import { Reducer } from './reduce.ts'
import type { RunHeading, RunSnapshot } from './run-events.ts'
import { snapshotInSlices } from './snapshot.ts'
import { LOG, recordOf } from './stored.ts'

/** One look at the clock serves several records: each takes about a microsecond. */
const RECORDS_A_LOOK = 16

/** The snapshot from the records alone, up to and including `atSeq`; null without records. Nothing is written. */
export async function replayRun(
  reader: Reader,
  scope: ByteString,
  atSeq: number | undefined,
): Promise<RunSnapshot | null> {
  const reducer = new Reducer()
  const facts = new FactReader()
  let heading: RunHeading | undefined
  let records = 0
  const to = atSeq === undefined ? undefined : u64(atSeq)
  for await (const page of pages(reader, { scope, tag: LOG, to })) {
    for (const entry of page) {
      if (++records % RECORDS_A_LOOK === 0 && isSliceOver()) await nextSlice()
      heading ??= recordOf(entry)
      reducer.add(facts.read(entry))
    }
  }
  return heading === undefined || reducer.run === undefined
    ? null
    : snapshotInSlices(heading, reducer.run, reducer.steps.all)
}
