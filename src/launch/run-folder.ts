import { join, resolve } from 'node:path'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import type { Disk } from '../disk/disk.ts'
import { type NodeDiskOptions, openNodeDisk } from '../disk/node-disk.ts'

/** The files of a run's folder. */
export const EVENTS_FILE = 'events.ndjson'
export const TORN_FILE = 'events.ndjson.torn'
export const SNAPSHOT_FILE = 'snapshot.json'

const RUN_ID = /^[A-Za-z0-9._-]{1,128}$/

/** Opens a folder of the file system or of a simulated disk. */
export type OpenDisk = (path: string, options: NodeDiskOptions) => Disk

/** Where runs are. */
export interface RunsPlace {
  readonly runsFolder: string
  /** @internal For tests: opens another disk instead of the runs folder. */
  readonly openDisk?: OpenDisk
}

/** ND10: refuses an id before it becomes part of a path. */
function checkRunId(runId: unknown): string {
  if (typeof runId === 'string' && RUN_ID.test(runId) && runId !== '.' && runId !== '..') return runId
  const rule =
    'must have 1 to 128 of the characters A-Z a-z 0-9 . _ - and not be . or .., as it names a folder'
  throw invalidArgument('runId', rule, runId)
}

/** The absolute path of a run's folder, which may not exist. */
export function runFolder({ runsFolder }: RunsPlace, runId: string): string {
  if (typeof runsFolder !== 'string' || runsFolder === '' || runsFolder.includes('\0')) {
    throw invalidArgument('runsFolder', 'must be the path of a folder', runsFolder)
  }
  return join(resolve(runsFolder), checkRunId(runId))
}

/** Opens the folder of all runs, and creates it if it is missing. The caller closes it. */
export function openRuns({ runsFolder, openDisk = openNodeDisk }: RunsPlace): Disk {
  return openDisk(resolve(runsFolder), {})
}

/** Opens the folder of all runs; undefined if it is missing. The caller closes it. */
export function openExistingRuns(place: RunsPlace, options: NodeDiskOptions): Disk | undefined {
  const { runsFolder, openDisk = openNodeDisk } = place
  try {
    return openDisk(resolve(runsFolder), { ...options, make: false })
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'INVALID_ARGUMENT') return undefined
    throw error
  }
}

/** Opens the folder of a run; `RUN_NOT_FOUND` if it is missing. The caller closes it. */
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
