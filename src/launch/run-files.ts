import { AnnalsError } from '../core/errors.ts'
import type { Disk } from '../disk/disk.ts'
import type { EventLog } from './log.ts'
import { DatabaseLog, firstLineOfDatabase, readLogDatabase } from './log-database.ts'
import { FileLog, firstLineOfFile, readLogFile, syncLogFile } from './log-file.ts'
import type { LaunchDatabase, LaunchPlace } from './options.ts'
import { type Replayed, replayBytes } from './replay.ts'
import { openRun, runFolder } from './run-folder.ts'
import { type ReadSnapshot, readSnapshot } from './snapshot.ts'
import type { StateModel } from './states.ts'

/** What is there of a run, looked at without changing anything. */
export interface FoundRun {
  readonly replayed: Replayed
  readonly snapshot: ReadSnapshot
}

/** The run as its log tells it; `RUN_NOT_FOUND` if there is none. */
export async function findRun(
  disk: Disk,
  runId: string,
  place: LaunchPlace,
  states: StateModel,
  atEvent?: number,
): Promise<FoundRun> {
  // The snapshot first: a run that is being worked on may write both in between, and a log that is older than its
  // snapshot would seem to have lost its end.
  const snapshot = readSnapshot(disk, runId)
  const bytes = await readLog(disk, runId, place)
  return { snapshot, replayed: replayBytes(bytes, runId, states, snapshot, atEvent) }
}

export async function readLog(disk: Disk, runId: string, { log, db }: LaunchPlace): Promise<Buffer> {
  return log === 'database' ? readLogDatabase((db as LaunchDatabase).events, runId) : readLogFile(disk)
}

/** Makes durable what of the log is there, before anybody relies on it. The run must be locked. */
export async function syncLog(disk: Disk, { log }: LaunchPlace): Promise<void> {
  if (log !== 'database') await syncLogFile(disk)
}

/** A run as it stands, whoever works on it. */
export async function lookAtRun(
  runId: string,
  place: LaunchPlace,
  states: StateModel,
  atEvent?: number,
): Promise<FoundRun> {
  const disk = openRun(runId, place, { readOnly: true })
  try {
    return await findRun(disk, runId, place, states, atEvent)
  } finally {
    disk.close()
  }
}

/** Says of which launch the run is; undefined before there is one. */
export async function readFirstLine(runId: string, place: LaunchPlace): Promise<string | undefined> {
  const { log, db } = place
  const disk = openRun(runId, place, { readOnly: true })
  try {
    return log === 'database'
      ? await firstLineOfDatabase((db as LaunchDatabase).events, runId)
      : firstLineOfFile(disk)
  } finally {
    disk.close()
  }
}

export async function openLog(disk: Disk, runId: string, { log, db }: LaunchPlace): Promise<EventLog> {
  if (log === 'database') return new DatabaseLog((db as LaunchDatabase).events, runId)
  return FileLog.open(disk)
}

/** ND12: at once, or `LOCKED`. The kernel lets go of it when the process dies; closing the disk releases it. */
export async function lockRun(disk: Disk, runId: string, place: LaunchPlace): Promise<void> {
  try {
    await disk.lock()
  } catch (error) {
    if (!isLocked(error)) throw error
    const message = `run ${JSON.stringify(runId)} is being worked on, in this process or in another one`
    throw new AnnalsError('LOCKED', message, { runId, path: runFolder(place, runId) }, error)
  }
}

export function isLocked(error: unknown): boolean {
  return error instanceof AnnalsError && error.code === 'LOCKED'
}
