import { AnnalsError } from '../core/errors.ts'

/**
 * A folder of files, and the folders below it: all that Annals asks of a disk.
 * Names are relative paths, with `/` between their parts. The real disk is
 * `node-disk.ts`; its faulty twin, for the tests, is `test/simulation/simulated-disk.ts`.
 * Every call may throw an error with a `code` (`EIO`, `ENOSPC`, …).
 */
export interface Disk {
  /** Where on this machine the folder is; absent if it is not in a file system. */
  readonly location?: DiskLocation | undefined
  /**
   * Throws (see `folderGone`) if the folder was removed, moved or replaced since the disk was opened. So does every call
   * that creates, replaces or removes a name, before it does anything: another store may be at the same path by now.
   */
  check(): void
  /** Held until `close`, and not longer than the process lives. Rejects with `LOCKED` if another holder has it. */
  lock(): Promise<void>
  /** The names of the files in the folder, or in one below it, sorted. `ENOENT` if there is no such folder. */
  list(folder?: string): string[]
  /** The names of the folders in it, sorted. */
  folders(folder?: string): string[]
  /** `create` makes a new empty file and fails if there is one; `private` lets only its owner read it. */
  open(name: string, mode: 'read' | 'write' | 'create', access?: 'private'): DiskFile
  /** Replaces the file `to`, in the same folder, if there is one. Durable after `syncFolder`, as one change. */
  rename(from: string, to: string): void
  /** Durable only after `syncFolder`, like creation. */
  remove(name: string): void
  /** `remove`, off the main thread: giving back a large file takes its time. */
  removeLater(name: string): Promise<void>
  /** `EEXIST` if there is one. Durable after `syncFolder` of the folder above. */
  makeFolder(name: string): void
  /** `ENOTEMPTY` unless it is empty. */
  removeFolder(name: string): void
  /** Makes durable which names are in the folder, or in one below it. */
  syncFolder(folder?: string): void
  /** A folder below as a disk of its own, with its own lock; close both. `ENOENT` if there is none. */
  folder(name: string): Disk
  /** Releases the lock. */
  close(): void
}

export interface DiskLocation {
  /** The absolute path by which the folder was opened. */
  readonly path: string
  /** Device and inode identify the folder, whatever path leads to it; decimal, as they may exceed 2^53. */
  readonly device: string
  readonly inode: string
}

export interface DiskFile {
  size(): number
  /** Fills the buffer from `position`; returns how many bytes there were. May be short at the end only. */
  read(buffer: Uint8Array, position: number): number
  /** May write fewer bytes than asked, without throwing; returns how many. See `writeAll`. */
  write(buffer: Uint8Array, position: number): number
  /** `write`, off the main thread. */
  writeLater(buffer: Uint8Array, position: number): Promise<number>
  truncate(size: number): void
  /** Returns once all earlier writes are on the device. */
  sync(): void
  /** `sync`, off the main thread. */
  syncLater(): Promise<void>
  close(): void
}

/** Writes every byte or throws: a write that comes back short is asked to go on, and must make progress. */
export function writeAll(file: DiskFile, buffer: Uint8Array, position: number): void {
  let done = 0
  while (done < buffer.length) {
    const count = file.write(done === 0 ? buffer : buffer.subarray(done), position + done)
    if (count === 0) throw Object.assign(new Error('the disk took no more bytes'), { code: 'ENOSPC' })
    done += count
  }
}

export function viewOf(buffer: Buffer): DataView {
  return new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength)
}

/** Whether an error means that there is no room, rather than that the disk fails. */
export function isFull(error: unknown): boolean {
  const { code } = error as { code?: unknown }
  return code === 'ENOSPC' || code === 'EDQUOT'
}

/**
 * Which error says that no file descriptor is left, for this process or for the system; undefined for any other error.
 * Looks through what others have made of it. Nothing was opened, so nothing was changed, and later there may be some again.
 */
export function lackOfDescriptors(error: unknown): 'EMFILE' | 'ENFILE' | undefined {
  for (let each = error; each instanceof Error; each = each.cause) {
    const { code } = each as { code?: unknown }
    if (code === 'EMFILE' || code === 'ENFILE') return code
  }
  return undefined
}

/** `outcome` says what did not happen. */
export function outOfDescriptors(outcome: string, error: unknown): AnnalsError {
  const cause = lackOfDescriptors(error)
  const message = `${outcome}: no file descriptor is left (${cause}); close some files, or raise the limit (ulimit -n), and try again`
  return new AnnalsError('IO_ERROR', message, { cause }, error)
}

/** The path no longer leads to the folder that was opened. */
export function folderGone(path: string): AnnalsError {
  const message = `${path} was removed, moved or replaced since it was opened: nothing more is written; open the store again where it is now`
  return new AnnalsError('IO_ERROR', message, { path, folder: 'gone' })
}

export function isFolderGone(error: unknown): error is AnnalsError {
  return error instanceof AnnalsError && error.details['folder'] === 'gone'
}

/** What callers hear of a disk that fails or forbids: they look for one class and its codes. */
export function diskFailure(error: unknown, what: string): AnnalsError {
  if (error instanceof AnnalsError) return error
  if (lackOfDescriptors(error) !== undefined) return outOfDescriptors(what, error)
  return new AnnalsError(isFull(error) ? 'DISK_FULL' : 'IO_ERROR', `${what}: ${String(error)}`, {}, error)
}

/** Of a sync that failed, for whatever reason: another can't make it good. */
export function unconfirmed(error: unknown): AnnalsError {
  const message = `the disk failed to confirm a write (${String(error)})`
  return new AnnalsError('OUTCOME_UNKNOWN', message, {}, error)
}

export function isUnconfirmed(error: unknown): boolean {
  return error instanceof AnnalsError && error.code === 'OUTCOME_UNKNOWN'
}

/** `syncLater`, with the failure told apart. */
export async function syncOrFail(file: DiskFile): Promise<void> {
  try {
    await file.syncLater()
  } catch (error) {
    throw unconfirmed(error)
  }
}

/**
 * The same disk, whose folder counts as lost once a sync of it has failed. That sync may have been for the names of
 * several files, whoever asked for it: the next one would succeed, and say nothing of them.
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
