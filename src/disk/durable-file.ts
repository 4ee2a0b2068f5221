import { type Disk, type DiskFile, writeAll } from './disk.ts'

/** Reads files, and writes files that a crash leaves complete or absent. */

/** The content of a file; undefined if it does not exist. */
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

/** Replaces a file atomically, even if the power fails. Calls for the same name must not overlap. */
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

/** Writes a file, and replaces an existing one. The content is durable; the name is durable after a sync of its folder. */
export async function writeNewFile(
  disk: Disk,
  name: string,
  content: Uint8Array,
  access?: 'private',
): Promise<void> {
  // A process that crashed may have left one.
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
 * Makes a folder and its parents, each durable before the next one. Existing folders are synced too, because the process
 * that made them may have crashed before it synced them. `synced` collects the folders that are known to be durable.
 */
export function makeFolders(disk: Disk, path: string, synced: Set<string> = new Set()): void {
  if (path === '' || synced.has(path)) return
  makeFolders(disk, folderOf(path), synced)
  makeFolder(disk, path)
  disk.syncFolder(folderOf(path))
  synced.add(path)
}

/** Makes a folder; false if it exists. Durable after a sync of the folder above. */
export function makeFolder(disk: Disk, path: string): boolean {
  try {
    disk.makeFolder(path)
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    throw error
  }
}

/** Removes a file if it exists. Durable after a sync of its folder. */
export function removeIfThere(disk: Disk, name: string): void {
  try {
    disk.remove(name)
  } catch (error) {
    unlessMissing(error)
  }
}

/** Renames a file durably; false if `from` does not exist. */
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

/** The names of the files in a folder; empty if the folder does not exist. */
export function filesIn(disk: Disk, folder: string): readonly string[] {
  try {
    return disk.list(folder)
  } catch (error) {
    unlessMissing(error)
    return []
  }
}

/** Returns undefined for an `ENOENT` error, and throws any other error. */
export function unlessMissing(error: unknown): undefined {
  if (codeOf(error) === 'ENOENT') return undefined
  throw error
}

/** The folder of a path; empty for the disk's own folder. */
export function folderOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')))
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown }).code
}
