import { spawn } from 'node:child_process'
import { closeSync, constants, fstatSync, openSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { AnnalsError } from '../core/errors.ts'

/**
 * One process at a time may have a folder open. The kernel holds the lock, so
 * it dies with its process, whatever kills that: nothing stale to clean up,
 * no PID that belongs to somebody else by now.
 *
 * Which mechanism is used depends on the platform alone, never on what happens
 * to be installed: two processes that lock by different means both succeed.
 */
export interface FolderLock {
  release(): void
}

/** Only where the folder itself can't be locked; never removed, or two processes could lock two files of that name. */
export const LOCK_FILE = 'lock'

// Documented for fs.open on these platforms, but `fs.constants` lacks them.
const BSD_O_EXLOCK = 0x20
const WINDOWS_O_EXLOCK = 0x1000_0000

const LOCK_FILE_FLAGS: Partial<Record<NodeJS.Platform, number>> = {
  darwin: BSD_O_EXLOCK | constants.O_NONBLOCK,
  freebsd: BSD_O_EXLOCK | constants.O_NONBLOCK,
  openbsd: BSD_O_EXLOCK | constants.O_NONBLOCK,
  netbsd: BSD_O_EXLOCK | constants.O_NONBLOCK,
  win32: WINDOWS_O_EXLOCK,
}

/** Rejects with `LOCKED` if any process, this one included, has the lock. Never waits for the lock. */
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
 * An flock belongs to the open file description, not to the process that asks
 * for it. So the `flock` command, given our descriptor, locks it for us and
 * goes; the lock stays until we close the descriptor or die. Node opens files
 * with O_CLOEXEC, so no other child of ours inherits it and outlives us with
 * the lock. It needs no file and works in a folder we can only read.
 */
async function lockFolderItself(path: string): Promise<number> {
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY)
  try {
    await runFlock(path, descriptor)
    // Somebody may have replaced the folder between open and lock: then we hold a lock that nobody else will see.
    const ours = fstatSync(descriptor, { bigint: true })
    const there = statSync(path, { bigint: true })
    if (ours.ino !== there.ino || ours.dev !== there.dev) {
      throw new AnnalsError('IO_ERROR', `${path} was replaced by another folder while it was opened`, {
        path,
      })
    }
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    throw error
  }
}

/** On a network file system the call itself may hang, although `-n` never waits for a lock. */
const FLOCK_TIMEOUT_MS = 5_000

async function runFlock(path: string, descriptor: number): Promise<void> {
  const { status, complaint } = await flock(descriptor).catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'ENOENT' ? 'it is not on the PATH' : error.message
    const message = `can't lock ${path}: the command flock (util-linux, busybox) is needed, and ${reason}`
    throw new AnnalsError('IO_ERROR', message, { path }, error)
  })
  if (status === 0) return
  // Busybox ends with 1 for every failure, but prints nothing only if another process holds the lock.
  if (status === 1 && !complaint.includes('flock:')) throw locked(path)
  const reason = complaint || `flock ended with ${status ?? 'a signal'}`
  throw new AnnalsError('IO_ERROR', `can't lock ${path}: ${reason}`, { path })
}

function flock(descriptor: number): Promise<{ readonly status: number | null; readonly complaint: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn('flock', ['-n', '-x', '3'], {
      stdio: ['ignore', 'ignore', 'pipe', descriptor],
      // The current folder may be gone, which would look like a missing command.
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
  // A folder we can only read: lock the file that its writers left there.
  try {
    return openSync(file, constants.O_RDONLY | exclusive)
  } catch (error) {
    if (isHeldByAnother(error)) throw locked(path)
    throw new AnnalsError('IO_ERROR', `can't lock ${path}: can't open ${file}`, { path }, error)
  }
}

function isHeldByAnother(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code
  // Windows answers with a sharing violation, which libuv names EBUSY.
  return code === 'EAGAIN' || code === 'EWOULDBLOCK' || (process.platform === 'win32' && code === 'EBUSY')
}

function locked(path: string): AnnalsError {
  return new AnnalsError('LOCKED', `${path} is open already, in this process or in another one`, { path })
}
