import { closeSync, fsyncSync, mkdirSync, openSync, renameSync, rmSync, statSync, writeSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { AnnalsError } from '../core/errors.ts'

/** Where a run's files are, and how a file is written so that it is there wholly or not at all. */

export const EVENTS_FILE = 'events.ndjson'
export const TORN_FILE = 'events.ndjson.torn'
export const SNAPSHOT_FILE = 'snapshot.json'

const RUN_ID = /^[A-Za-z0-9._-]{1,128}$/

/** ND10: before a path is made of it. */
export function checkRunId(runId: unknown): string {
  if (typeof runId === 'string' && RUN_ID.test(runId) && runId !== '.' && runId !== '..') return runId
  const message =
    'a run id names a folder: it must have 1 to 128 of the characters A-Z a-z 0-9 . _ - and not be . or ..'
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'runId', value: runId })
}

/** The folder of a run, which need not be there. Absolute, so that a later `chdir` changes nothing. */
export function runFolder(runsFolder: unknown, runId: string): string {
  if (typeof runsFolder !== 'string' || runsFolder === '' || runsFolder.includes('\0')) {
    const message = 'runsFolder must be the path of the folder in which runs have theirs'
    throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'runsFolder', value: runsFolder })
  }
  return join(resolve(runsFolder), checkRunId(runId))
}

export function isThere(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined
}

/** With every folder above it, durable each before the one below. */
export function makeFolder(folder: string): void {
  if (isThere(folder)) return
  const above = dirname(folder)
  makeFolder(above)
  mkdirSync(folder, { recursive: true })
  syncFolder(above)
}

/** Without it a power cut could take away the name of a file that is on disk. */
export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r')
  try {
    fsyncSync(descriptor)
  } catch (error) {
    // Windows can't sync a folder, and NTFS journals its own.
    if (process.platform !== 'win32') throw error
  } finally {
    closeSync(descriptor)
  }
}

/** Replaces a file: whoever reads it sees the old or the new one, also after a power cut. */
export function replaceFile(path: string, content: Uint8Array): void {
  const temporary = `${path}.tmp`
  writeDurably(temporary, content)
  renameSync(temporary, path)
  syncFolder(dirname(path))
}

/** A new file; durable with its content, not yet with its name. */
export function writeDurably(path: string, content: Uint8Array): void {
  const descriptor = openSync(path, 'w')
  try {
    writeAll(descriptor, content)
    fsyncSync(descriptor)
  } catch (error) {
    rmSync(path, { force: true })
    throw error
  } finally {
    closeSync(descriptor)
  }
}

/** `writeSync` may write less than asked, without an error. */
function writeAll(descriptor: number, content: Uint8Array): void {
  for (let done = 0; done < content.length; ) done += writeSync(descriptor, content, done)
}
