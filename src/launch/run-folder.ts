import { join, resolve } from 'node:path'
import { AnnalsError } from '../core/errors.ts'
import type { Disk } from '../disk/disk.ts'
import { type NodeDiskOptions, openNodeDisk } from '../disk/node-disk.ts'

/** Where the folder of a run is, and what is in it. */

export const EVENTS_FILE = 'events.ndjson'
export const TORN_FILE = 'events.ndjson.torn'
export const SNAPSHOT_FILE = 'snapshot.json'

const RUN_ID = /^[A-Za-z0-9._-]{1,128}$/

/** Opens a folder of the file system, or a simulated one. */
export type OpenDisk = (path: string, options: NodeDiskOptions) => Disk

export interface RunsPlace {
  readonly runsFolder: string
  /** @internal For tests: opens another disk in place of the runs' folder. */
  readonly openDisk?: OpenDisk
}

/** ND10: before a path is made of it. */
export function checkRunId(runId: unknown): string {
  if (typeof runId === 'string' && RUN_ID.test(runId) && runId !== '.' && runId !== '..') return runId
  const message =
    'a run id names a folder: it must have 1 to 128 of the characters A-Z a-z 0-9 . _ - and not be . or ..'
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'runId', value: runId })
}

/** The path of a run's folder, which need not be there. Absolute, so that a later `chdir` changes nothing. */
export function runFolder({ runsFolder }: RunsPlace, runId: string): string {
  if (typeof runsFolder !== 'string' || runsFolder === '' || runsFolder.includes('\0')) {
    const message = 'runsFolder must be the path of the folder in which runs have theirs'
    throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'runsFolder', value: runsFolder })
  }
  return join(resolve(runsFolder), checkRunId(runId))
}

/** The folder of all runs; one that is missing is made. Close it. */
export function openRuns({ runsFolder, openDisk = openNodeDisk }: RunsPlace): Disk {
  return openDisk(resolve(runsFolder), {})
}

/** The folder of all runs; undefined if it is missing. */
export function openExistingRuns(place: RunsPlace, options: NodeDiskOptions): Disk | undefined {
  const { runsFolder, openDisk = openNodeDisk } = place
  try {
    return openDisk(resolve(runsFolder), { ...options, make: false })
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'INVALID_ARGUMENT') return undefined
    throw error
  }
}

/** The folder of a run, to look at it or to work on it; `RUN_NOT_FOUND` if there is none. Close it. */
export function openRun(runId: string, place: RunsPlace, options: NodeDiskOptions = {}): Disk {
  runFolder(place, runId)
  const runs = openExistingRuns(place, options)
  try {
    const disk = runs?.folder(runId)
    if (disk !== undefined) return disk
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ENOENT' && code !== 'ENOTDIR') throw error
  } finally {
    runs?.close()
  }
  const message = `there is no run ${JSON.stringify(runId)} in ${place.runsFolder}`
  throw new AnnalsError('RUN_NOT_FOUND', message, { runId, runsFolder: place.runsFolder })
}
