import {
  accessSync,
  type BigIntStats,
  closeSync,
  constants,
  type Dirent,
  fdatasync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  realpathSync,
  renameSync,
  rmdirSync,
  statSync,
  unlinkSync,
  write,
  writeSync,
} from 'node:fs'
import { unlink } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path'
import { AnnalsError, type ErrorCode } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import { type Disk, type DiskFile, type DiskLocation, folderGone } from './disk.ts'
import { type FolderLock, LOCK_FILE, lockFolder } from './lock.ts'

export interface NodeDiskOptions {
  readonly readOnly?: boolean
  /** Whether a folder that is missing is made: unless `readOnly`, if not told otherwise. */
  readonly make?: boolean
}

/** The real disk: a folder of the file system. Makes it if it is missing; takes no lock yet. */
export function openNodeDisk(path: string, options: NodeDiskOptions = {}): Disk {
  if (typeof path !== 'string') throw invalid(`the path must be a string, not ${typeof path}`, path)
  if (path === '') throw invalid('the path is empty', path)
  if (path.includes('\0')) throw invalid('the path holds a NUL', path)
  const readOnly = options.readOnly === true
  // Absolute, so that a later `process.chdir` can't send us to another folder.
  const folder = resolve(path)
  if (isFolder(folder)) {
    checkAccess(folder, readOnly)
  } else {
    if (!(options.make ?? !readOnly)) throw invalid(`there is no folder ${folder}`, folder)
    makeFolder(folder)
  }
  return new NodeDisk(folder, readOnly)
}

/** Whether a path, which need not be there yet, is the folder or leads into it, by whatever links. */
export function isWithin(folder: string, path: string): boolean {
  const way = relative(realPath(resolve(folder)), realPath(resolve(path)))
  return way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way)
}

function realPath(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    const parent = dirname(path)
    return parent === path ? path : join(realPath(parent), basename(path))
  }
}

/**
 * Names are looked up in the folder that was opened, not at its path, where the system can do that: then nothing
 * can ever be created in another folder. Elsewhere there is a moment between the check and the call.
 */
class NodeDisk implements Disk {
  readonly #path: string
  /** By which files are reached. */
  readonly #base: string
  readonly #readOnly: boolean
  #folder: number
  #identity: BigIntStats
  #lock: FolderLock | undefined

  constructor(path: string, readOnly: boolean) {
    this.#path = path
    this.#readOnly = readOnly
    this.#folder = openSync(path, 'r')
    this.#identity = fstatSync(this.#folder, { bigint: true })
    const base = `/proc/self/fd/${this.#folder}`
    const there = statSync(base, { bigint: true, throwIfNoEntry: false })
    this.#base = isSame(there, this.#identity) ? base : path
  }

  get location(): DiskLocation {
    const { dev, ino } = this.#identity
    return { path: this.#path, device: String(dev), inode: String(ino) }
  }

  check(): void {
    this.#checkOpen()
    const there = statSync(this.#path, { bigint: true, throwIfNoEntry: false })
    if (isSame(there, this.#identity)) return
    // Some file systems give a folder another number while it is open.
    this.#identity = fstatSync(this.#folder, { bigint: true })
    if (!isSame(there, this.#identity)) throw folderGone(this.#path)
  }

  async lock(): Promise<void> {
    this.#checkOpen()
    invariant(this.#lock === undefined, 'a disk is locked once')
    const lock = await lockFolder(this.#path)
    try {
      // The lock was taken by the path, so this checks that the path still leads to the folder that was opened.
      this.check()
    } catch (error) {
      lock.release()
      throw error
    }
    this.#lock = lock
  }

  list(folder = ''): string[] {
    return this.#entries(folder, entry => !entry.isDirectory() && (folder !== '' || entry.name !== LOCK_FILE))
  }

  folders(folder = ''): string[] {
    return this.#entries(folder, entry => entry.isDirectory())
  }

  open(name: string, mode: 'read' | 'write' | 'create', access?: 'private'): DiskFile {
    if (mode !== 'read') this.#checkWritable()
    const flags = mode === 'read' ? 'r' : mode === 'write' ? 'r+' : 'wx+'
    const bits = access === 'private' ? 0o600 : 0o666
    return new NodeFile(this.#named(() => openSync(this.#pathOf(name), flags, bits)))
  }

  rename(from: string, to: string): void {
    this.#checkWritable()
    renameSync(this.#pathOf(from), this.#pathOf(to))
  }

  remove(name: string): void {
    this.#checkWritable()
    unlinkSync(this.#pathOf(name))
  }

  async removeLater(name: string): Promise<void> {
    this.#checkWritable()
    await unlink(this.#pathOf(name))
  }

  makeFolder(name: string): void {
    this.#checkWritable()
    mkdirSync(this.#pathOf(name))
  }

  removeFolder(name: string): void {
    this.#checkWritable()
    rmdirSync(this.#pathOf(name))
  }

  syncFolder(folder = ''): void {
    this.#checkOpen()
    if (folder === '') {
      syncFolderDescriptor(this.#folder)
      return
    }
    const descriptor = openSync(this.#pathOf(folder), 'r')
    try {
      syncFolderDescriptor(descriptor)
    } finally {
      closeSync(descriptor)
    }
  }

  folder(name: string): Disk {
    this.check()
    invariant(isPathBelow(name), `not a path below the folder: ${name}`)
    const path = join(this.#path, name)
    if (!statSync(path).isDirectory())
      throw Object.assign(new Error(`${path} is no folder`), { code: 'ENOTDIR' })
    return new NodeDisk(path, this.#readOnly)
  }

  close(): void {
    if (this.#folder === -1) return
    closeSync(this.#folder)
    this.#folder = -1
    this.#lock?.release()
    this.#lock = undefined
  }

  #entries(folder: string, isWanted: (entry: Dirent) => boolean): string[] {
    this.#checkOpen()
    const path = folder === '' ? this.#base : this.#pathOf(folder)
    const entries = readdirSync(path, { withFileTypes: true })
    return entries
      .filter(isWanted)
      .map(({ name }) => name)
      .sort()
  }

  #pathOf(name: string): string {
    this.#checkOpen()
    invariant(isPathBelow(name), `not a path below the folder: ${name}`)
    return join(this.#base, name)
  }

  /** An error names the path that people know. */
  #named<T>(call: () => T): T {
    try {
      return call()
    } catch (error) {
      if (error instanceof Error) error.message = error.message.replaceAll(this.#base, this.#path)
      throw error
    }
  }

  #checkOpen(): void {
    invariant(this.#folder !== -1, 'the disk is open')
  }

  #checkWritable(): void {
    if (this.#readOnly)
      throw new AnnalsError('READ_ONLY', `${this.#path} is open read-only`, { path: this.#path })
    this.check()
  }
}

function isSame(a: BigIntStats | undefined, b: BigIntStats): boolean {
  return a !== undefined && a.ino === b.ino && a.dev === b.dev
}

class NodeFile implements DiskFile {
  #descriptor: number
  #underWay = 0
  #closing = false

  constructor(descriptor: number) {
    this.#descriptor = descriptor
  }

  size(): number {
    return fstatSync(this.#open()).size
  }

  read(buffer: Uint8Array, position: number): number {
    const descriptor = this.#open()
    let done = 0
    while (done < buffer.length) {
      const count = readSync(descriptor, buffer, done, buffer.length - done, position + done)
      if (count === 0) break
      done += count
    }
    return done
  }

  write(buffer: Uint8Array, position: number): number {
    return writeSync(this.#open(), buffer, 0, buffer.length, position)
  }

  writeLater(buffer: Uint8Array, position: number): Promise<number> {
    return this.#later((descriptor, done) => write(descriptor, buffer, 0, buffer.length, position, done))
  }

  truncate(size: number): void {
    ftruncateSync(this.#open(), size)
  }

  sync(): void {
    fdatasyncSync(this.#open())
  }

  syncLater(): Promise<void> {
    return this.#later((descriptor, done) => fdatasync(descriptor, error => done(error, undefined)))
  }

  close(): void {
    this.#closing = true
    this.#closeWhenIdle()
  }

  #open(): number {
    invariant(!this.#closing, 'the file is open')
    return this.#descriptor
  }

  #later<T>(start: (descriptor: number, done: (error: Error | null, value: T) => void) => void): Promise<T> {
    const descriptor = this.#open()
    return new Promise((resolve, reject) => {
      this.#underWay++
      start(descriptor, (error, value) => {
        this.#underWay--
        if (this.#closing) this.#closeWhenIdle()
        if (error) reject(error)
        else resolve(value)
      })
    })
  }

  // Closed under a call that is still under way, the number could by then belong to another file, and be written to.
  #closeWhenIdle(): void {
    if (this.#underWay > 0 || this.#descriptor === -1) return
    const descriptor = this.#descriptor
    this.#descriptor = -1
    closeSync(descriptor)
  }
}

/** Whoever calls has checked what it makes names of: this is for mistakes of our own. */
function isPathBelow(name: string): boolean {
  return !name.includes('\0') && name.split('/').every(part => !['', '.', '..'].includes(part))
}

function isFolder(path: string): boolean {
  try {
    if (statSync(path).isDirectory()) return true
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false
    throw refusal(path, error)
  }
  throw invalid(`${path} is a file, not a folder`, path)
}

function checkAccess(folder: string, readOnly: boolean): void {
  try {
    accessSync(folder, constants.R_OK | constants.X_OK)
    if (!readOnly) syncParent(folder)
  } catch (error) {
    throw refusal(folder, error)
  }
  if (readOnly) return
  try {
    accessSync(folder, constants.W_OK)
  } catch (error) {
    const message = `${folder} may not be written; to read what is there, open with readOnly: true`
    throw new AnnalsError('READ_ONLY', message, { path: folder }, error)
  }
}

/**
 * Makes the folder and those above it that are missing, each durable before
 * the next one, so that a power cut leaves at most the deepest one unsynced;
 * whoever goes on from there syncs that first. If one can't be made, those
 * already made go again.
 */
function makeFolder(folder: string): void {
  const missing = [folder]
  for (let above = dirname(folder); !isFolder(above); above = dirname(above)) missing.push(above)
  const made: string[] = []
  try {
    for (const path of missing.reverse()) {
      syncParent(dirname(path))
      if (makeOne(path)) made.push(path)
    }
    checkAccess(folder, false)
  } catch (error) {
    for (const path of made.reverse()) rmdirSync(path)
    throw error instanceof AnnalsError ? error : refusal(folder, error)
  }
}

/** False if somebody else was faster, which is fine. */
function makeOne(path: string): boolean {
  try {
    mkdirSync(path)
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST' && isFolder(path)) return false
    throw error
  }
}

/**
 * A folder is found after a power cut only if its entry in the folder above is
 * durable. Not only for those we make: a process before us may have died
 * between making ours and syncing it.
 */
function syncParent(folder: string): void {
  let descriptor: number
  try {
    descriptor = openSync(dirname(folder), 'r')
  } catch (error) {
    // We may pass through a folder that we may not read, and have no way to sync it.
    if (codeOf(error) === 'EACCES' || codeOf(error) === 'EPERM') return
    throw error
  }
  try {
    syncFolderDescriptor(descriptor)
  } catch (error) {
    // Ours may be mounted into a folder of the kernel's or of a read-only system, which takes no sync and needs none.
    if (codeOf(error) !== 'EINVAL' && codeOf(error) !== 'EROFS') throw error
  } finally {
    closeSync(descriptor)
  }
}

function syncFolderDescriptor(descriptor: number): void {
  try {
    fsyncSync(descriptor)
  } catch (error) {
    // Windows can't sync a folder, and NTFS journals its own.
    if (process.platform !== 'win32' || codeOf(error) !== 'EPERM') throw error
  }
}

const REFUSALS: Readonly<Record<string, { readonly code: ErrorCode; readonly why: string }>> = {
  EACCES: { code: 'IO_ERROR', why: 'permission denied' },
  EPERM: { code: 'IO_ERROR', why: 'permission denied' },
  EROFS: { code: 'READ_ONLY', why: 'it is not there, and its file system is read-only' },
  ENOTDIR: { code: 'INVALID_ARGUMENT', why: 'a part of its path is a file' },
  ENAMETOOLONG: { code: 'INVALID_ARGUMENT', why: 'its name is too long' },
  ELOOP: { code: 'INVALID_ARGUMENT', why: 'its links go in circles' },
  ENOSPC: { code: 'DISK_FULL', why: 'the disk is full' },
}

function refusal(path: string, cause: unknown): AnnalsError {
  const { code, why } = REFUSALS[codeOf(cause) ?? ''] ?? { code: 'IO_ERROR', why: String(cause) }
  return new AnnalsError(code, `can't open ${path}: ${why}`, { path }, cause)
}

function invalid(message: string, path: unknown): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', message, { path })
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code
}
