import { AnnalsError } from '../core/errors.ts'

/**
 * The interface of a folder with its files and subfolders. Names are relative paths with `/` as separator. `node-disk.ts`
 * implements it on the file system. Tests use `test/simulation/simulated-disk.ts`, which simulates failures and crashes.
 * Every call may throw an error with a `code` (`EIO`, `ENOSPC`, …).
 */
export interface Disk {
  /** The place of the folder on this machine; absent if it is not in a file system. */
  readonly location?: DiskLocation | undefined
  /**
   * Throws (see `folderGone`) if the folder was removed, moved or replaced since the disk was opened. Calls that create,
   * replace or remove a name check this first, because another store may be at the same path by now.
   */
  check(): void
  /** Locks the folder until `close` or the end of the process. Rejects with `LOCKED` if it is locked already. */
  lock(): Promise<void>
  /** The sorted names of the files in the folder, or in a subfolder. `ENOENT` if it does not exist. */
  list(folder?: string): string[]
  /** The sorted names of the subfolders. */
  folders(folder?: string): string[]
  /** `create` makes a new empty file, and fails if the file exists. `private` lets only the owner read it. */
  open(name: string, mode: 'read' | 'write' | 'create', access?: 'private'): DiskFile
  /** Renames a file within its folder, and replaces the file `to` if it exists. Atomic; durable after `syncFolder`. */
  rename(from: string, to: string): void
  /** Removes a file. Durable after `syncFolder`. */
  remove(name: string): void
  /** `remove`, off the main thread, because freeing a large file takes long. */
  removeLater(name: string): Promise<void>
  /** Makes a subfolder. `EEXIST` if it exists. Durable after `syncFolder` of the folder above. */
  makeFolder(name: string): void
  /** Removes an empty subfolder. `ENOTEMPTY` if it is not empty. */
  removeFolder(name: string): void
  /** Makes the names in the folder, or in a subfolder, durable. */
  syncFolder(folder?: string): void
  /** Opens a subfolder as a disk with its own lock, which must be closed too. `ENOENT` if it does not exist. */
  folder(name: string): Disk
  /** Closes the disk and releases the lock. */
  close(): void
}

/** The place of a folder on this machine. */
export interface DiskLocation {
  /** The absolute path with which the folder was opened. */
  readonly path: string
  /** Device and inode identify the folder, whatever its path is. Decimal strings, because they may exceed 2^53. */
  readonly device: string
  readonly inode: string
}

/** An open file. */
export interface DiskFile {
  size(): number
  /** Reads from `position` into the buffer, and returns the number of bytes. It is less than asked only at the file's end. */
  read(buffer: Uint8Array, position: number): number
  /** Writes at `position`, and returns the number of bytes, which may be less than asked. See `writeAll`. */
  write(buffer: Uint8Array, position: number): number
  /** `write`, off the main thread. */
  writeLater(buffer: Uint8Array, position: number): Promise<number>
  truncate(size: number): void
  /** Makes all earlier writes durable. */
  sync(): void
  /** `sync`, off the main thread. */
  syncLater(): Promise<void>
  close(): void
}

/** Writes all bytes or throws. Continues after short writes. */
export function writeAll(file: DiskFile, buffer: Uint8Array, position: number): void {
  let done = 0
  while (done < buffer.length) {
    const count = file.write(done === 0 ? buffer : buffer.subarray(done), position + done)
    if (count === 0) throw Object.assign(new Error('the disk accepts no more bytes'), { code: 'ENOSPC' })
    done += count
  }
}

/** A view of the buffer's bytes. */
export function viewOf(buffer: Buffer): DataView {
  return new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength)
}

/** Whether an error means that the disk or the quota is full. */
export function isFull(error: unknown): boolean {
  const { code } = error as { code?: unknown }
  return code === 'ENOSPC' || code === 'EDQUOT'
}

/**
 * The code of an error, or of its causes, that says that no file descriptor is left; undefined for other errors. Such an
 * error is temporary, and nothing was changed.
 */
export function lackOfDescriptors(error: unknown): 'EMFILE' | 'ENFILE' | undefined {
  for (let each = error; each instanceof Error; each = each.cause) {
    const { code } = each as { code?: unknown }
    if (code === 'EMFILE' || code === 'ENFILE') return code
  }
  return undefined
}

/** The error for a lack of file descriptors. `outcome` says which operation failed. */
export function outOfDescriptors(outcome: string, error: unknown): AnnalsError {
  const cause = lackOfDescriptors(error)
  const message = `${outcome}: no file descriptor is left (${cause}); close some files, or raise the limit (ulimit -n), and try again`
  return new AnnalsError('IO_ERROR', message, { cause }, error)
}

/** The error for a path that no longer leads to the folder that was opened. */
export function folderGone(path: string): AnnalsError {
  const message = `${path} was removed, moved or replaced since it was opened. The store writes nothing more; open it again at its new place`
  return new AnnalsError('IO_ERROR', message, { path, folder: 'gone' })
}

/** Whether an error comes from `folderGone`. */
export function isFolderGone(error: unknown): error is AnnalsError {
  return error instanceof AnnalsError && error.details['folder'] === 'gone'
}

/** Converts an error of the disk to an `AnnalsError`. `what` says which operation failed. */
export function diskFailure(error: unknown, what: string): AnnalsError {
  if (error instanceof AnnalsError) return error
  if (lackOfDescriptors(error) !== undefined) return outOfDescriptors(what, error)
  return new AnnalsError(isFull(error) ? 'DISK_FULL' : 'IO_ERROR', `${what}: ${String(error)}`, {}, error)
}

/** The error for a failed sync. The outcome stays unknown, because a later sync may succeed without writing the data. */
export function unconfirmed(error: unknown): AnnalsError {
  const message = `the disk failed to confirm a write (${String(error)})`
  return new AnnalsError('OUTCOME_UNKNOWN', message, {}, error)
}

/** Whether an error comes from `unconfirmed`. */
export function isUnconfirmed(error: unknown): boolean {
  return error instanceof AnnalsError && error.code === 'OUTCOME_UNKNOWN'
}

/** `syncLater`, which throws `OUTCOME_UNKNOWN` if it fails. */
export async function syncOrFail(file: DiskFile): Promise<void> {
  try {
    await file.syncLater()
  } catch (error) {
    throw unconfirmed(error)
  }
}

/**
 * Wraps a disk so that after a failed `syncFolder` every later one fails too. The failed sync may have covered names of
 * several callers. A later sync would succeed without making those names durable.
 */
export function withOneFolderFailure(disk: Disk): Disk {
  let failure: AnnalsError | undefined
  return {
    location: disk.location,
    check: () => disk.check(),
    lock: () => disk.lock(),
    list: folder => disk.list(folder),
    folders: folder => disk.folders(folder),
    open: (name, mode, access) => disk.open(name, mode, access),
    rename: (from, to) => disk.rename(from, to),
    remove: name => disk.remove(name),
    removeLater: name => disk.removeLater(name),
    makeFolder: name => disk.makeFolder(name),
    removeFolder: name => disk.removeFolder(name),
    folder: name => disk.folder(name),
    syncFolder: folder => {
      if (failure !== undefined) throw failure
      try {
        disk.syncFolder(folder)
      } catch (error) {
        failure = unconfirmed(error)
        throw failure
      }
    },
    close: () => disk.close(),
  }
}
