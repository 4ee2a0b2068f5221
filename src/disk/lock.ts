import { spawn } from 'node:child_process'
import { closeSync, constants, fstatSync, openSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { AnnalsError } from '../core/errors.ts'

/**
 * A lock that lets one process at a time open a folder. The kernel releases it when the process ends, however it ends. So
 * there are no stale locks, and no process ids that may be reused.
 *
 * The mechanism depends only on the platform, never on the commands that are installed. Two processes with different
 * mechanisms would both get the lock.
 */
export interface FolderLock {
  release(): void
}

/**
 * The lock file on platforms that can't lock a folder. It is never removed. Otherwise two processes could each lock another
 * file of that name.
 */
export const LOCK_FILE = 'lock'

// Node documents these flags for fs.open, but `fs.constants` lacks them.
const BSD_O_EXLOCK = 0x20
const WINDOWS_O_EXLOCK = 0x1000_0000

const LOCK_FILE_FLAGS: Partial<Record<NodeJS.Platform, number>> = {
  darwin: BSD_O_EXLOCK | constants.O_NONBLOCK,
  freebsd: BSD_O_EXLOCK | constants.O_NONBLOCK,
  openbsd: BSD_O_EXLOCK | constants.O_NONBLOCK,
  netbsd: BSD_O_EXLOCK | constants.O_NONBLOCK,
  win32: WINDOWS_O_EXLOCK,
}

/** Locks a folder. Rejects with `LOCKED` at once if any process, including this one, has the lock. */
export async function lockFolder(path: string): Promise<FolderLock> {
  const flags = LOCK_FILE_FLAGS[process.platform]
  const descriptor = flags === undefined ? await lockFolderItself(path) : lockFile(path, flags)
  let held = true
  return {
    release() {
      if (held) closeSync(descriptor)
      held = false
    },
  }
}

/**
 * Locks the folder's own descriptor. An flock belongs to the open file description, not to the process that requests it.
 * So the `flock` command can lock our descriptor and exit, and the lock stays until we close the descriptor or end. Node
 * opens files with O_CLOEXEC, so no other child process inherits the lock. This needs no lock file, so it works in
 * read-only folders.
 */
async function lockFolderItself(path: string): Promise<number> {
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY)
  try {
    await runFlock(path, descriptor)
    // If the folder was replaced between open and lock, other processes would not see our lock.
    const ours = fstatSync(descriptor, { bigint: true })
    const there = statSync(path, { bigint: true })
    if (ours.ino !== there.ino || ours.dev !== there.dev) {
      throw new AnnalsError('IO_ERROR', `${path} was replaced while it was being opened`, {
        path,
      })
    }
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    throw error
  }
}

/** `-n` never waits for a lock, but the call can hang on a network file system. */
const FLOCK_TIMEOUT_MS = 5_000

async function runFlock(path: string, descriptor: number): Promise<void> {
  const { status, complaint } = await flock(descriptor).catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'ENOENT' ? 'it is not on the PATH' : error.message
    const message = `cannot lock ${path}: this needs the command flock (util-linux, busybox), and ${reason}`
    throw new AnnalsError('IO_ERROR', message, { path }, error)
  })
  if (status === 0) return
  // Busybox exits with 1 for every failure, but prints no error only if another process has the lock.
  if (status === 1 && !complaint.includes('flock:')) throw locked(path)
  const reason = complaint || `flock exited with ${status ?? 'a signal'}`
  throw new AnnalsError('IO_ERROR', `cannot lock ${path}: ${reason}`, { path })
}

function flock(descriptor: number): Promise<{ readonly status: number | null; readonly complaint: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn('flock', ['-n', '-x', '3'], {
      stdio: ['ignore', 'ignore', 'pipe', descriptor],
      // If the current folder was removed, spawn would fail as if the command were missing.
      cwd: '/',
      timeout: FLOCK_TIMEOUT_MS,
    })
    let complaint = ''
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      complaint += text
    })
    child.once('error', reject)
    child.once('close', status => resolve({ status, complaint: complaint.trim() }))
  })
}

function lockFile(path: string, exclusive: number): number {
  const file = join(path, LOCK_FILE)
  try {
    return openSync(file, constants.O_RDWR | constants.O_CREAT | exclusive, 0o666)
  } catch (error) {
    if (isHeldByAnother(error)) throw locked(path)
    if (process.platform === 'win32') throw error
  }
  // The folder may be read-only. Then lock the file that a writer has created there.
  try {
    return openSync(file, constants.O_RDONLY | exclusive)
  } catch (error) {
    if (isHeldByAnother(error)) throw locked(path)
    throw new AnnalsError('IO_ERROR', `cannot lock ${path}: cannot open ${file}`, { path }, error)
  }
}

function isHeldByAnother(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code
  // Windows reports a sharing violation, which libuv maps to EBUSY.
  return code === 'EAGAIN' || code === 'EWOULDBLOCK' || (process.platform === 'win32' && code === 'EBUSY')
}

function locked(path: string): AnnalsError {
  return new AnnalsError(
    'LOCKED',
    `${path} is already open, in this process or another one; only one at a time can open it`,
    { path },
  )
}
