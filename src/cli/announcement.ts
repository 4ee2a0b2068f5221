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
 * A server writes its address into the folder of its store, so that other commands find it: the lock says only that some
 * process has the folder. The file is a hint. Whoever follows it asks the server which store it has (`holder.ts`).
 */
const FILE = 'server.json'
const BYTES_MAX = 4_096

type Warn = (message: string) => void

/** Writes the address, and answers what takes it back. That it can't be written is no reason not to serve. */
export function announce(data: string, url: string, warn: Warn): () => void {
  const path = join(data, FILE)
  try {
    replaceFile(path, `${JSON.stringify({ url, pid: process.pid })}\n`)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === undefined) throw error
    warn(
      `can't write ${safeText(path)}: ${safeText(message)}. Other commands find this server only if you add --server ${shellWord(url)}`,
    )
    return () => undefined
  }
  return () => rmSync(path, { force: true })
}

/** A new file that takes the place of what is there: a link that somebody put there is replaced, not followed. */
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
 * The address that the server of a folder wrote there. Undefined if there is none, or if its process is gone: then somebody
 * else may listen on its port.
 */
export function announcedServer(data: string, warn: Warn): string | undefined {
  const text = trustedText(data, warn)
  if (text === undefined) return undefined
  const { url, pid } = parsed(text)
  if (typeof url !== 'string' || !/^https?:\/\//.test(url) || !Number.isSafeInteger(pid)) return undefined
  return isAlive(pid as number) ? url : undefined
}

/** What is in the file, if only we, root or the owner of the folder can have written it. */
function trustedText(data: string, warn: Warn): string | undefined {
  const path = join(data, FILE)
  let descriptor: number
  try {
    // Without O_NONBLOCK a named pipe would be waited for.
    const flags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0)
    descriptor = openSync(path, flags)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    if (code === undefined) throw error
    warn(
      `${safeText(path)} is ignored: it ${code === 'ELOOP' ? NO_FILE : `can't be read: ${safeText(message)}`}`,
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

const NO_FILE = 'is no plain file'
const OTHERS_WRITE = 0o022

function distrust(descriptor: number, data: string): string | undefined {
  const stats = fstatSync(descriptor)
  if (!stats.isFile()) return NO_FILE
  if (stats.size > BYTES_MAX) return `is longer than ${BYTES_MAX} bytes`
  // Not on Windows, where files have no owner and no mode.
  if (process.getuid === undefined) return undefined
  const owners = [process.getuid(), 0, statSync(data).uid]
  if (!owners.includes(stats.uid)) return 'belongs to another user'
  return (stats.mode & OTHERS_WRITE) === 0 ? undefined : 'may be written by others'
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
    // Of somebody else, but there.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
