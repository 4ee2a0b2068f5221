import { type Disk, type DiskFile, writeAll } from './disk.ts'

/** How files get onto a disk so that a crash leaves each wholly there or not at all, and how they are read. */

/** The bytes of a file; undefined if there is none. */
export function readFile(disk: Disk, name: string): Buffer | undefined {
  let file: DiskFile
  try {
    file = disk.open(name, 'read')
  } catch (error) {
    return unlessMissing(error)
  }
  try {
    const bytes = Buffer.alloc(file.size())
    return bytes.subarray(0, file.read(bytes, 0))
  } finally {
    file.close()
  }
}

/** Replaces a file: a reader sees the old or the new content, also after a power cut. One call at a time for each name. */
export async function replaceFile(
  disk: Disk,
  name: string,
  content: Uint8Array,
  access?: 'private',
): Promise<void> {
  const temporary = `${name}.tmp`
  await writeNewFile(disk, temporary, content, access)
  disk.rename(temporary, name)
  disk.syncFolder(folderOf(name))
}

/** A file with this content alone. The content is durable, the name not before its folder is synced. */
export async function writeNewFile(
  disk: Disk,
  name: string,
  content: Uint8Array,
  access?: 'private',
): Promise<void> {
  // A process that died may have left one.
  removeIfThere(disk, name)
  const file = disk.open(name, 'create', access)
  try {
    writeAll(file, content, 0)
    await file.syncLater()
  } catch (error) {
    removeIfThere(disk, name)
    throw error
  } finally {
    file.close()
  }
}

/**
 * Makes a folder and those above it, each durable before the next one. Folders that are there are synced too, since the
 * process that made them may have died before it did; `synced` remembers which ones need that no more.
 */
export function makeFolders(disk: Disk, path: string, synced: Set<string> = new Set()): void {
  if (path === '' || synced.has(path)) return
  makeFolders(disk, folderOf(path), synced)
  makeFolder(disk, path)
  disk.syncFolder(folderOf(path))
  synced.add(path)
}

/** False if there is one. Not durable before the folder above is synced. */
export function makeFolder(disk: Disk, path: string): boolean {
  try {
    disk.makeFolder(path)
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    throw error
  }
}

/** Not durable before its folder is synced. */
export function removeIfThere(disk: Disk, name: string): void {
  try {
    disk.remove(name)
  } catch (error) {
    unlessMissing(error)
  }
}

/** False if there is no file `from`. Durable once this returns. */
export function renameIfThere(disk: Disk, from: string, to: string): boolean {
  try {
    disk.rename(from, to)
  } catch (error) {
    unlessMissing(error)
    return false
  }
  disk.syncFolder(folderOf(to))
  return true
}

/** The names of the files in a folder; none if there is no such folder. */
export function filesIn(disk: Disk, folder: string): readonly string[] {
  try {
    return disk.list(folder)
  } catch (error) {
    unlessMissing(error)
    return []
  }
}

/** Undefined for a file that is missing; throws any other error. */
export function unlessMissing(error: unknown): undefined {
  if (codeOf(error) === 'ENOENT') return undefined
  throw error
}

/** The folder that a path is in; empty for the disk's own. */
export function folderOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')))
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown }).code
}
