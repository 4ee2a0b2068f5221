import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import { applyEvent } from './apply-event.ts'
import { broken, lineOf, type VerifiedLog, verifyLog } from './chain.ts'
import type { LaunchEvent, LaunchSnapshot, LogSeal } from './events.ts'
import type { LaunchState } from './launch-state.ts'
import { type ReadSnapshot, snapshotOf, snapshotText } from './snapshot.ts'
import type { StateModel } from './states.ts'

/** The state of a run, replayed from its log. */
export interface Replayed {
  readonly state: LaunchState
  readonly events: readonly LaunchEvent[]
  readonly seal: LogSeal
  readonly tornBytes: number
  /** Why the snapshot could not be used. */
  readonly snapshotProblem?: string
}

/** Replays a log, or its first `events` events. Pure: no worker runs. `RUN_NOT_FOUND` for an empty log. */
export function replayBytes(
  bytes: Buffer,
  runId: string,
  model: StateModel,
  found: ReadSnapshot,
  events?: number,
): Replayed {
  const sealProblem = found.kind === 'read' ? problemOfSeal(bytes, found.snapshot.log) : undefined
  const log = verifiedLog(bytes, runId, sealProblem)
  if (log.events.length === 0) throw nothingThere(runId)
  if (sealProblem !== undefined) throw sealProblem
  const chosen = events === undefined ? log.events : log.events.slice(0, events)
  if (chosen.length === 0 || (events !== undefined && chosen.length < events)) {
    throw invalidArgument('atEvent', `must be from 1 to ${log.events.length}, the events of the log`, events)
  }
  const upTo = found.kind === 'read' ? found.snapshot.log.events : 0
  let state: LaunchState | undefined
  let covered: LaunchState | undefined
  for (const [index, event] of chosen.entries()) {
    state = reduceLine(state, event, model, index + 1)
    if (index + 1 === upTo) covered = state
  }
  const problem = problemOfSnapshot(found, covered)
  return {
    state: state as LaunchState,
    events: chosen,
    seal: sealOf(chosen),
    tornBytes: log.tornBytes,
    ...(problem === undefined ? {} : { snapshotProblem: problem }),
  }
}

/** The snapshot of a replayed state. */
export function snapshotAt({ state, seal }: Pick<Replayed, 'state' | 'seal'>): LaunchSnapshot {
  return snapshotOf(state, seal)
}

function reduceLine(
  state: LaunchState | undefined,
  event: LaunchEvent,
  model: StateModel,
  line: number,
): LaunchState {
  try {
    return applyEvent(state, event, model)
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    throw broken(
      line,
      `${error.message}. If the launch has its own state model, pass it as states`,
      {},
      error,
    )
  }
}

/** If the seal does not match, a line was changed, even one that looks as if a later version had written it. */
function verifiedLog(bytes: Buffer, runId: string, sealProblem: AnnalsError | undefined): VerifiedLog {
  try {
    return verifyLog(bytes, runId)
  } catch (error) {
    if (sealProblem === undefined || !(error instanceof AnnalsError) || error.code !== 'FORMAT_TOO_NEW')
      throw error
    throw broken(Number(error.details['line']), 'it was changed after the snapshot was made', {}, error)
  }
}

function problemOfSeal(bytes: Buffer, { events, bytes: sealed, sha256 }: LogSeal): AnnalsError | undefined {
  if (bytes.length < sealed) {
    return broken(events, `the log lost its end: the snapshot covers ${sealed} bytes`, {
      bytes: sealed,
    })
  }
  if (sha256Hex(bytes.subarray(0, sealed)) === sha256) return undefined
  const why =
    `one of the lines 1 to ${events} was changed after the snapshot was made ` +
    '(the hashes of lines do not cover trace and span ids)'
  return broken(events, why, { fromLine: 1 })
}

/** The snapshot of a log with a matching seal must be equal to the replayed one. */
function problemOfSnapshot(found: ReadSnapshot, covered: LaunchState | undefined): string | undefined {
  if (found.kind === 'missing') return 'it is missing'
  if (found.kind === 'invalid') return found.reason
  if (covered === undefined) return undefined
  const expected = snapshotText(snapshotOf(covered, found.snapshot.log))
  return found.text === expected ? undefined : 'it differs from the replayed snapshot'
}

function sealOf(events: readonly LaunchEvent[]): LogSeal {
  const text = events.map(lineOf).join('')
  return { events: events.length, bytes: Buffer.byteLength(text), sha256: sha256Hex(text) }
}

function nothingThere(runId: string): AnnalsError {
  const message = `run ${JSON.stringify(runId)} has no events: it was not started in this folder`
  return new AnnalsError('RUN_NOT_FOUND', message, { runId })
}
