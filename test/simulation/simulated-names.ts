import { posix } from 'node:path'
import { ioError } from './disk-faults.ts'
import { cutFolder, type Fate, type FolderChange, KEEP_ALL } from './power-cut.ts'

/** The entry of a path that is a folder. The entry of a file is the file's number. */
const FOLDER = -1

/**
 * The names on a simulated disk: the visible ones, the durable ones, and the pending changes. A change becomes durable
 * when the folder of its name is synced. Maps and lists are replaced and never modified, so that images can share them.
 */
export class SimulatedNames {
  #seen: ReadonlyMap<string, number>
  #durable: ReadonlyMap<string, number>
  #changes: readonly FolderChange[] = []

  /** All names are durable. */
  constructor(names: ReadonlyMap<string, number> = new Map()) {
    this.#seen = names
    this.#durable = names
  }

  /** Creates the names of these files and of all folders above them. */
  static of(files: ReadonlyMap<string, number>): SimulatedNames {
    const names = new Map(files)
    for (const path of files.keys()) {
      for (let above = folderOf(path); above !== ''; above = folderOf(above)) names.set(above, FOLDER)
    }
    return new SimulatedNames(names)
  }

  /** The number of the file with this path; undefined if there is none. */
  fileAt(path: string): number | undefined {
    const found = this.#seen.get(path)
    return found === FOLDER ? undefined : found
  }

  has(path: string): boolean {
    return this.#seen.has(path)
  }

  isFolder(path: string): boolean {
    return path === '' || this.#seen.get(path) === FOLDER
  }

  /** The names in a folder, sorted. */
  namesIn(folder: string, kind: 'files' | 'folders'): string[] {
    if (!this.isFolder(folder)) throw ioError('ENOENT', 'list', folder)
    const names: string[] = []
    for (const [path, found] of this.#seen) {
      if (folderOf(path) === folder && (found === FOLDER) === (kind === 'folders'))
        names.push(posix.basename(path))
    }
    return names.sort()
  }

  /** The paths of all files, sorted. */
  paths(): string[] {
    return [...this.#seen].flatMap(([path, found]) => (found === FOLDER ? [] : [path])).sort()
  }

  /** The numbers of the visible files. */
  seenFiles(): number[] {
    return [...this.#seen.values()].filter(found => found !== FOLDER)
  }

  /** The numbers of the files that may exist after a power cut. */
  possibleFiles(): Set<number> {
    const files = new Set(this.#durable.values())
    for (const { file } of this.#changes) if (file !== undefined) files.add(file)
    files.delete(FOLDER)
    return files
  }

  get changes(): number {
    return this.#changes.length
  }

  set(path: string, file: number): void {
    this.#checkFolderOf(path)
    this.#change({ name: path, file })
  }

  remove(path: string): void {
    if (this.fileAt(path) === undefined) throw ioError('ENOENT', 'remove', path)
    this.#change({ name: path, file: undefined })
  }

  rename(from: string, to: string): void {
    const file = this.fileAt(from)
    if (file === undefined) throw ioError('ENOENT', 'rename', from)
    this.#checkFolderOf(to)
    if (from !== to) this.#change({ name: to, file, from })
  }

  makeFolder(path: string): void {
    this.#checkFolderOf(path)
    if (this.has(path)) throw ioError('EEXIST', 'makeFolder', path)
    this.#change({ name: path, file: FOLDER })
  }

  removeFolder(path: string): void {
    if (!this.isFolder(path)) throw ioError('ENOENT', 'removeFolder', path)
    if ([...this.#seen.keys()].some(other => folderOf(other) === path))
      throw ioError('ENOTEMPTY', 'removeFolder', path)
    this.#change({ name: path, file: undefined })
  }

  /** Makes the changes in a folder durable, as far as `fate` decides. */
  sync(folder: string, fate: Fate): void {
    if (!this.isFolder(folder)) throw ioError('ENOENT', 'syncFolder', folder)
    const own = this.#changes.filter(({ name }) => folderOf(name) === folder)
    this.#durable = cutFolder(this.#durable, own, fate)
    this.#changes = this.#changes.filter(({ name }) => folderOf(name) !== folder)
  }

  /** The names that a power cut leaves. A lost folder loses everything below it. */
  afterPowerCut(fate: Fate): [path: string, file: number][] {
    const left = cutFolder(this.#durable, this.#changes, fate)
    const isReachable = (path: string): boolean => {
      const above = folderOf(path)
      return above === '' || (left.get(above) === FOLDER && isReachable(above))
    }
    return [...left].filter(([path]) => isReachable(path))
  }

  /** A copy for the image of a process crash. */
  copy(): SimulatedNames {
    const copy = new SimulatedNames(this.#seen)
    copy.#durable = this.#durable
    copy.#changes = this.#changes
    return copy
  }

  /**
   * Renumbers the remaining files and returns their old numbers, in the order of the new ones. Returns undefined if no file
   * was removed, or if the durable names differ from the visible ones.
   */
  renumbered(files: number): number[] | undefined {
    const kept = this.seenFiles()
    if (kept.length === files || this.#changes.length > 0 || this.#seen.size !== this.#durable.size) return
    // After a failed sync of the folder, the durable names may differ from the visible ones.
    for (const [path, found] of this.#seen) if (this.#durable.get(path) !== found) return
    const names = new Map<string, number>()
    let next = 0
    for (const [path, found] of this.#seen) names.set(path, found === FOLDER ? FOLDER : next++)
    this.#seen = names
    this.#durable = names
    return kept
  }

  #change(change: FolderChange): void {
    this.#seen = cutFolder(this.#seen, [change], KEEP_ALL)
    this.#changes = [...this.#changes, change]
  }

  #checkFolderOf(path: string): void {
    if (!this.isFolder(folderOf(path))) throw ioError('ENOENT', 'open', path)
  }
}

export function isFolderEntry(file: number): boolean {
  return file === FOLDER
}

function folderOf(path: string): string {
  const above = posix.dirname(path)
  return above === '.' ? '' : above
}
