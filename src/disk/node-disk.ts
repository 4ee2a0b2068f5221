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

/** Options for `openNodeDisk`. */
export interface NodeDiskOptions {
  readonly readOnly?: boolean
  /** Whether to create a missing folder. By default true, unless `readOnly`. */
  readonly make?: boolean
}

/** Opens a folder of the file system, and creates it if it is missing. Does not lock it. */
export function openNodeDisk(path: string, options: NodeDiskOptions = {}): Disk {
  if (typeof path !== 'string') throw invalid(`the path must be a string, not ${typeof path}`, path)
  if (path === '') throw invalid('the path is empty', path)
  if (path.includes('\0')) throw invalid('the path contains a NUL character', path)
  const readOnly = options.readOnly === true
  // An absolute path is not affected by a later `process.chdir`.
  const folder = resolve(path)
  if (isFolder(folder)) {
    checkAccess(folder, readOnly)
  } else {
    if (!(options.make ?? !readOnly)) throw invalid(`the folder ${folder} does not exist`, folder)
    makeFolder(folder)
  }
  return new NodeDisk(folder, readOnly)
}

/** Whether a path is the folder or inside it, with symbolic links resolved. The path need not exist. */
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
 * A folder of the file system. Where `/proc` is available, names are resolved in the folder that was opened, not at its
 * path. So files can't be created in a folder that replaced it. Elsewhere the folder can be replaced between check and call.
 */
class NodeDisk implements Disk {
  readonly #path: string
  /** The path under which files are opened. */
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
    // Some file systems change the inode number of an open folder.
    this.#identity = fstatSync(this.#folder, { bigint: true })
    if (!isSame(there, this.#identity)) throw folderGone(this.#path)
  }

  async lock(): Promise<void> {
    this.#checkOpen()
    invariant(this.#lock === undefined, 'a disk is locked once')
    const lock = await lockFolder(this.#path)
    try {
      // The lock was taken through the path, so check that the path still leads to the folder that was opened.
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
      throw Object.assign(new Error(`${path} is not a folder`), { code: 'ENOTDIR' })
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

  /** Replaces the `/proc` path in errors by the path that the user knows. */
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

  // If the descriptor were closed during a call, another file could get its number, and the call would write to that file.
  #closeWhenIdle(): void {
    if (this.#underWay > 0 || this.#descriptor === -1) return
    const descriptor = this.#descriptor
    this.#descriptor = -1
    closeSync(descriptor)
  }
}

/** Whether a name stays within the folder. Callers check user input themselves, so this finds only bugs in Annals. */
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
    const message = `${folder} is not writable; to read it, open with readOnly: true`
    throw new AnnalsError('READ_ONLY', message, { path: folder }, error)
  }
}

/**
 * Makes the folder and its missing parents, each durable before the next one. So a power cut leaves at most the deepest one
 * unsynced, and the next attempt syncs it first. If one can't be made, the new ones are removed again.
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

/** Makes a folder; false if another process has made it meanwhile. */
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
 * Makes the folder's entry in its parent durable, so that the folder exists after a power cut. Existing folders need this
 * too, because an earlier process may have crashed between making and syncing one.
 */
function syncParent(folder: string): void {
  let descriptor: number
  try {
    descriptor = openSync(dirname(folder), 'r')
  } catch (error) {
    // A parent may be accessible but not readable. Such a folder can't be synced.
    if (codeOf(error) === 'EACCES' || codeOf(error) === 'EPERM') return
    throw error
  }
  try {
    syncFolderDescriptor(descriptor)
  } catch (error) {
    // The parent of a mount point may be a kernel or read-only file system, which can't be synced and needs no sync.
    if (codeOf(error) !== 'EINVAL' && codeOf(error) !== 'EROFS') throw error
  } finally {
    closeSync(descriptor)
  }
}

function syncFolderDescriptor(descriptor: number): void {
  try {
    fsyncSync(descriptor)
  } catch (error) {
    // Windows can't sync a folder. NTFS has a journal for it.
    if (process.platform !== 'win32' || codeOf(error) !== 'EPERM') throw error
  }
}

const REFUSALS: Readonly<Record<string, { readonly code: ErrorCode; readonly why: string }>> = {
  EACCES: { code: 'IO_ERROR', why: 'permission denied' },
  EPERM: { code: 'IO_ERROR', why: 'permission denied' },
  EROFS: { code: 'READ_ONLY', why: 'it does not exist, and its file system is read-only' },
  ENOTDIR: { code: 'INVALID_ARGUMENT', why: 'a part of the path is a file' },
  ENAMETOOLONG: { code: 'INVALID_ARGUMENT', why: 'the name is too long' },
  ELOOP: { code: 'INVALID_ARGUMENT', why: 'its symbolic links form a loop' },
  ENOSPC: { code: 'DISK_FULL', why: 'the disk is full' },
}

function refusal(path: string, cause: unknown): AnnalsError {
  const { code, why } = REFUSALS[codeOf(cause) ?? ''] ?? { code: 'IO_ERROR', why: String(cause) }
  return new AnnalsError(code, `cannot open ${path}: ${why}`, { path }, cause)
}

function invalid(message: string, path: unknown): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', message, { path })
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code
}
