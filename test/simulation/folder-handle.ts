import { invariant } from '../../src/core/invariant.ts'
import type { Disk } from '../../src/disk/disk.ts'

/** The operations of a handle that need the simulated disk itself. */
export interface FolderOwner {
  lock(holder: object): void
  release(holder: object): void
  /** Throws if the folder was replaced after the handle was opened. */
  check(): void
}

/**
 * A process's open handle of a folder on a simulated disk. It can't be used after it is closed, and can't write after
 * the folder was replaced.
 */
export function folderHandle(disk: Disk, path: string, owner: FolderOwner): Disk {
  let open = true
  const at = (name = ''): string => {
    invariant(open, 'the disk is open')
    return path === '' || name === '' ? path + name : `${path}/${name}`
  }
  const toChange = (name: string): string => {
    owner.check()
    return at(name)
  }
  return {
    check: () => owner.check(),
    async lock() {
      invariant(open, 'the disk is open')
      owner.lock(this)
    },
    list: folder => disk.list(at(folder)),
    folders: folder => disk.folders(at(folder)),
    open: (name, mode) => disk.open(mode === 'read' ? at(name) : toChange(name), mode),
    rename: (from, to) => disk.rename(toChange(from), at(to)),
    remove: name => disk.remove(toChange(name)),
    removeLater: async name => disk.removeLater(toChange(name)),
    makeFolder: name => disk.makeFolder(toChange(name)),
    removeFolder: name => disk.removeFolder(toChange(name)),
    syncFolder: folder => disk.syncFolder(at(folder)),
    folder: name => disk.folder(at(name)),
    close() {
      open = false
      owner.release(this)
    },
  }
}
