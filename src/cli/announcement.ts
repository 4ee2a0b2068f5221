import { randomUUID } from 'node:crypto'
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { safeText } from './safe-text.ts'
import { shellWord } from './shell-word.ts'

/**
 * A server writes its address into the folder of its store so that other commands find it. The file is a hint: before a
 * command relies on it, it asks the server which store it has (`holding-server.ts`).
 */
const FILE = 'server.json'
const BYTES_MAX = 4_096

type Warn = (message: string) => void

/** Writes the address and returns a function that removes it. A server also runs if it cannot write the file. */
export function announce(data: string, url: string, warn: Warn): () => void {
  const path = join(data, FILE)
  try {
    replaceFile(path, `${JSON.stringify({ url, pid: process.pid })}\n`)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === undefined) throw error
    warn(
      `cannot write ${safeText(path)}: ${safeText(message)}. Other commands need --server ${shellWord(url)} to find this server`,
    )
    return () => undefined
  }
  return () => rmSync(path, { force: true })
}

/** Replaces the file by renaming a new one. A symbolic link in its place is replaced, not followed. */
function replaceFile(path: string, text: string): void {
  const unfinished = `${path}.${randomUUID()}`
  const flags = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY | (constants.O_NOFOLLOW ?? 0)
  const descriptor = openSync(unfinished, flags, 0o644)
  try {
    try {
      writeSync(descriptor, text)
    } finally {
      closeSync(descriptor)
    }
    renameSync(unfinished, path)
  } catch (error) {
    rmSync(unfinished, { force: true })
    throw error
  }
}

/**
 * The address that a server wrote into the folder. Undefined if there is none or if its process has ended: another program
 * may listen on its port now.
 */
export function announcedServer(data: string, warn: Warn): string | undefined {
  const text = trustedText(data, warn)
  if (text === undefined) return undefined
  const { url, pid } = parsed(text)
  if (typeof url !== 'string' || !/^https?:\/\//.test(url) || !Number.isSafeInteger(pid)) return undefined
  return isAlive(pid as number) ? url : undefined
}

/** The content of the file, if only this user, root or the owner of the folder can have written it. */
function trustedText(data: string, warn: Warn): string | undefined {
  const path = join(data, FILE)
  let descriptor: number
  try {
    // Without O_NONBLOCK, opening a named pipe would block.
    const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0)
    descriptor = openSync(path, flags)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    if (code === undefined) throw error
    warn(
      `${safeText(path)} is ignored: it ${code === 'ELOOP' ? NO_FILE : `cannot be read: ${safeText(message)}`}`,
    )
    return undefined
  }
  try {
    const why = distrust(descriptor, data)
    if (why === undefined) {
      const bytes = Buffer.alloc(BYTES_MAX)
      return bytes.toString('utf8', 0, readSync(descriptor, bytes, 0, BYTES_MAX, 0))
    }
    warn(`${safeText(path)} is ignored: it ${why}`)
    return undefined
  } finally {
    closeSync(descriptor)
  }
}

const NO_FILE = 'is not a regular file'
const OTHERS_WRITE = 0o022

function distrust(descriptor: number, data: string): string | undefined {
  const stats = fstatSync(descriptor)
  if (!stats.isFile()) return NO_FILE
  if (stats.size > BYTES_MAX) return `is longer than ${BYTES_MAX} bytes`
  // Windows has no owner and mode.
  if (process.getuid === undefined) return undefined
  const owners = [process.getuid(), 0, statSync(data).uid]
  if (!owners.includes(stats.uid)) return 'belongs to another user'
  return (stats.mode & OTHERS_WRITE) === 0 ? undefined : 'is writable by other users'
}

function parsed(text: string): Readonly<Record<string, unknown>> {
  try {
    return (JSON.parse(text) ?? {}) as Readonly<Record<string, unknown>>
  } catch (error) {
    if (error instanceof SyntaxError) return {}
    throw error
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    // The process exists but belongs to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
