import { type ByteString, u64 } from '../core/bytes.ts'
import { invariant } from '../core/invariant.ts'
import type { Place } from '../engine/storage.ts'
import type { LedgerContext } from './context.ts'
import { factIn } from './facts.ts'
import { Reducer } from './reduce.ts'
import {
  GUARD_KEY,
  guardedStepIn,
  guardedStepPlace,
  LOG,
  placeOf,
  putGuardedStep,
  putRunState,
  runStateIn,
} from './stored.ts'

/** Records that one commit takes in. */
const RECORDS_MAX = 1_000

/**
 * Brings the state that appends are validated with up to date, for a run whose
 * earlier events were not validated. It is apart from what is projected: an
 * append is validated before it has a time, and only looks at one step.
 */
export async function catchUpGuard({ database }: LedgerContext, scope: ByteString): Promise<void> {
  const place = placeOf(scope, GUARD_KEY)
  for (;;) {
    const from = runStateIn(await database.get(place.scope, place.tag, place.key))?.lastEventSeq ?? 0
    const entries = await database.scan({ scope, tag: LOG, from: u64(from), limit: RECORDS_MAX })
    const last = entries.at(-1)
    if (last === undefined) return
    const facts = entries.map(factIn)
    const stepIds = [...new Set(facts.flatMap(({ stepId }) => (stepId === undefined ? [] : [stepId])))]
    const reads: Place[] = [
      place,
      { scope, tag: LOG, key: last.key },
      ...stepIds.map(stepId => guardedStepPlace(scope, stepId)),
    ]
    await database.update(reads, ([state, end, ...steps]) => {
      const reducer = new Reducer()
      reducer.run = runStateIn(state)
      // The run may have been deleted and begun anew since: then these records are not its own, or not its first ones.
      const isSameRun = end?.version === last.version && (reducer.run?.lastEventSeq ?? 0) >= from
      if (!isSameRun) return { operations: [], result: undefined }
      for (const entry of steps) {
        const step = guardedStepIn(entry)
        if (step !== undefined) reducer.steps.add(step)
      }
      for (const fact of facts) reducer.add(fact)
      invariant(reducer.run !== undefined, 'records make a state')
      const operations = reducer.steps.all.map(step => putGuardedStep(scope, step))
      return { operations: [putRunState(place, reducer.run), ...operations], result: undefined }
    })
  }
}
