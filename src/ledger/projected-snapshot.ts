import { type ByteString, u64 } from '../core/bytes.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import type { Reader } from '../engine/storage.ts'
import type { RunSnapshot, StepAttempt } from './run-events.ts'
import type { RunProjection } from './run-projection.ts'
import { snapshotInSlices } from './snapshot.ts'
import type { StepState } from './steps.ts'
import { HEADING_KEY, headingIn, LOG, placeOf, recordOf } from './stored.ts'

/** The snapshot of a projection that was loaded with the same reader; null without records. */
export async function snapshotIn(reader: Reader, projection: RunProjection): Promise<RunSnapshot | null> {
  const { scope, runId, run } = projection
  const heading = headingIn(await reader.get(scope, placeOf(scope, HEADING_KEY).tag, HEADING_KEY))
  if (heading === undefined || run === undefined) return null
  const whole: StepState[] = []
  for (const step of projection.steps) {
    if (isSliceOver()) await nextSlice()
    whole.push(hasError(step) ? await withErrors(reader, scope, step) : step)
  }
  return snapshotInSlices({ runId, ...heading }, run, whole)
}

function hasError({ error, attempts }: StepState): boolean {
  return error !== undefined || attempts.length > 0
}

/** With the errors themselves: the stored state has only the number of the record that holds each. */
async function withErrors(reader: Reader, scope: ByteString, step: StepState): Promise<StepState> {
  const withError = async (attempt: StepAttempt): Promise<StepAttempt> =>
    attempt.error === undefined ? attempt : { ...attempt, error: await errorAt(reader, scope, attempt.error) }
  const attempts = await Promise.all(step.attempts.map(withError))
  const error = step.error === undefined ? undefined : await errorAt(reader, scope, step.error)
  return { ...step, error, attempts }
}

async function errorAt(reader: Reader, scope: ByteString, runSeq: unknown): Promise<unknown> {
  const entry = await reader.get(scope, LOG, u64((runSeq as number) - 1))
  return entry === undefined ? undefined : recordOf(entry).payload?.['error']
}
