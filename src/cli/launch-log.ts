import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { AnnalsError } from '../index.ts'

/** The result of replaying a launch's log. */
export interface ReplayedLog {
  /** Absent for a launch that defines its own states: only its program knows them. Its hash chain and seal are valid. */
  readonly state?: string
  readonly events: number
}

const LF = 0x0a

/** Replays the log file of a launch without writing anything; undefined if the folder has no such log. */
export async function replayLog(runsFolder: string, runId: string): Promise<ReplayedLog | undefined> {
  // Other ids cannot be names of launch folders.
  if (!/^[A-Za-z0-9._-]{1,128}$/.test(runId) || runId === '.' || runId === '..') return undefined
  const path = join(runsFolder, runId, 'events.ndjson')
  // The log is in a database, or the launch never started.
  if (!existsSync(path)) return undefined
  const events = readFileSync(path).reduce((count, byte) => count + (byte === LF ? 1 : 0), 0)
  if (events === 0) return undefined
  const { replayLaunch } = await import('../launch.ts')
  // With `atEvent`, replayLaunch writes no snapshot.
  try {
    const { snapshot } = await replayLaunch(runId, { runsFolder, atEvent: events })
    return { state: snapshot.run_state, events }
  } catch (error) {
    if (isOfOtherStates(error)) return { events }
    throw error
  }
}

/** Format, chain and seal are checked before the states, so this error means that only the states are unknown. */
function isOfOtherStates(error: unknown): boolean {
  const { cause } = (error ?? {}) as { readonly cause?: unknown }
  return error instanceof AnnalsError && cause instanceof AnnalsError && cause.code === 'ILLEGAL_STATE'
}
