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

/** A run as its files show it. */
export interface FoundRun {
  readonly replayed: Replayed
  readonly snapshot: ReadSnapshot
}

/** Reads and replays a run without changing anything. `RUN_NOT_FOUND` if it has no events. */
export async function findRun(
  disk: Disk,
  runId: string,
  place: LaunchPlace,
  states: StateModel,
  atEvent?: number,
): Promise<FoundRun> {
  // The snapshot is read first. Otherwise a process that writes both in between would make it newer than the log,
  // and the log would seem to have lost its end.
  const snapshot = readSnapshot(disk, runId)
  const bytes = await readLog(disk, runId, place)
  return { snapshot, replayed: replayBytes(bytes, runId, states, snapshot, atEvent) }
}

/** The bytes of a run's log. */
export async function readLog(disk: Disk, runId: string, { log, db }: LaunchPlace): Promise<Buffer> {
  return log === 'database' ? readLogDatabase((db as LaunchDatabase).events, runId) : readLogFile(disk)
}

/** Makes the lines of a log durable before anything relies on them. The run must be locked. */
export async function syncLog(disk: Disk, { log }: LaunchPlace): Promise<void> {
  if (log !== 'database') await syncLogFile(disk)
}

/** Reads and replays a run that another process may work on. */
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

/** The first line of a run's log, which names its launch; undefined if there is none yet. */
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

/** Opens the log of a locked run for writing. */
export async function openLog(disk: Disk, runId: string, { log, db }: LaunchPlace): Promise<EventLog> {
  if (log === 'database') return new DatabaseLog((db as LaunchDatabase).events, runId)
  return FileLog.open(disk)
}

/** ND12: locks a run, or throws `LOCKED` at once. Closing the disk releases the lock, and so does the death of the process. */
export async function lockRun(disk: Disk, runId: string, place: LaunchPlace): Promise<void> {
  try {
    await disk.lock()
  } catch (error) {
    if (!isLocked(error)) throw error
    const message = `run ${JSON.stringify(runId)} is locked: this or another process works on it`
    throw new AnnalsError('LOCKED', message, { runId, path: runFolder(place, runId) }, error)
  }
}

/** Whether an error says that another process works on the run. */
export function isLocked(error: unknown): boolean {
  return error instanceof AnnalsError && error.code === 'LOCKED'
}
