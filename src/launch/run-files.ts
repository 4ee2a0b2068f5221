import { AnnalsError } from '../core/errors.ts'
import { type FolderLock, lockFolder } from '../disk/lock.ts'
import type { EventLog } from './log.ts'
import { DatabaseLog, firstLineOfDatabase, readLogDatabase } from './log-database.ts'
import { FileLog, firstLineOfFile, readLogFile } from './log-file.ts'
import type { LaunchDatabase, LaunchPlace } from './options.ts'
import { type Replayed, replayBytes } from './replay.ts'
import { checkRunId, isThere, runFolder } from './run-folder.ts'
import { type ReadSnapshot, readSnapshot } from './snapshot.ts'
import type { StateModel } from './states.ts'

/** What is there of a run, looked at without changing anything. */
export interface FoundRun {
  readonly folder: string
  readonly replayed: Replayed
  readonly snapshot: ReadSnapshot
}

/** The run as its log tells it; `RUN_NOT_FOUND` if there is none. */
export async function findRun(
  runId: string,
  place: LaunchPlace,
  states: StateModel,
  atEvent?: number,
): Promise<FoundRun> {
  const folder = existingFolder(runId, place)
  // The snapshot first: a run that is being worked on may write both in between, and a log that is older than its
  // snapshot would seem to have lost its end.
  const snapshot = readSnapshot(folder, runId)
  const bytes = await readLog(folder, runId, place)
  return { folder, snapshot, replayed: replayBytes(bytes, runId, states, snapshot, atEvent) }
}

export function existingFolder(runId: string, { runsFolder }: LaunchPlace): string {
  const folder = runFolder(runsFolder, checkRunId(runId))
  if (isThere(folder)) return folder
  const message = `there is no run ${JSON.stringify(runId)} in ${runsFolder}`
  throw new AnnalsError('RUN_NOT_FOUND', message, { runId, runsFolder })
}

export function readLog(folder: string, runId: string, { log, db }: LaunchPlace): Promise<Buffer> {
  return log === 'database' ? readLogDatabase((db as LaunchDatabase).events, runId) : readLogFile(folder)
}

/** Says of which launch the run is; undefined before there is one. */
export function readFirstLine(
  folder: string,
  runId: string,
  { log, db }: LaunchPlace,
): Promise<string | undefined> {
  return log === 'database'
    ? firstLineOfDatabase((db as LaunchDatabase).events, runId)
    : firstLineOfFile(folder)
}

export function openLog(folder: string, runId: string, { log, db }: LaunchPlace): Promise<EventLog> {
  if (log === 'database') return Promise.resolve(new DatabaseLog((db as LaunchDatabase).events, runId))
  return FileLog.open(folder)
}

/** ND12: at once, or `LOCKED`. The kernel lets go of it when the process dies. */
export function lockRun(folder: string, runId: string): FolderLock {
  try {
    return lockFolder(folder)
  } catch (error) {
    if (!(error instanceof AnnalsError) || error.code !== 'LOCKED') throw error
    const message = `run ${JSON.stringify(runId)} is being worked on, in this process or in another one`
    throw new AnnalsError('LOCKED', message, { runId, path: folder }, error)
  }
}
