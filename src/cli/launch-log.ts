import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { AnnalsError } from '../index.ts'

/** What the log of a launch comes to. */
export interface ReplayedLog {
  /** Absent for a launch with states of its own, which only its own program knows: its chain and its seal are right. */
  readonly state?: string
  readonly events: number
}

const LF = 0x0a

/** From its log alone, and without writing anything; undefined if there is no such log in the folder. */
export async function replayLog(runsFolder: string, runId: string): Promise<ReplayedLog | undefined> {
  // Others are no names of folders of launches.
  if (!/^[A-Za-z0-9._-]{1,128}$/.test(runId) || runId === '.' || runId === '..') return undefined
  const path = join(runsFolder, runId, 'events.ndjson')
  // Its log is in a database, or it never began.
  if (!existsSync(path)) return undefined
  const events = readFileSync(path).reduce((count, byte) => count + (byte === LF ? 1 : 0), 0)
  if (events === 0) return undefined
  const { replayLaunch } = await import('../launch.ts')
  // With the number of events given no snapshot is written.
  try {
    const { snapshot } = await replayLaunch(runId, { runsFolder, atEvent: events })
    return { state: snapshot.run_state, events }
  } catch (error) {
    if (isOfOtherStates(error)) return { events }
    throw error
  }
}

/** Form, chain and seal are looked at before the states: so these are all that does not fit. */
function isOfOtherStates(error: unknown): boolean {
  const { cause } = (error ?? {}) as { readonly cause?: unknown }
  return error instanceof AnnalsError && cause instanceof AnnalsError && cause.code === 'ILLEGAL_STATE'
}
