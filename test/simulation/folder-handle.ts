import { invariant } from '../../src/core/invariant.ts'
import type { Disk } from '../../src/disk/disk.ts'

/** What only the simulated disk itself can do. */
export interface FolderOwner {
  lock(holder: object): void
  release(holder: object): void
  /** Throws if the folder was replaced since. */
  check(): void
}

/** A folder of a simulated disk, as a process has it open. It can't be used once closed, nor changed once replaced. */
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
