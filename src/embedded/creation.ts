import { randomBytes } from 'node:crypto'
import { AnnalsError } from '../core/errors.ts'
import { type Disk, syncOrFail, writeAll } from '../disk/disk.ts'
import { corrupt, fileId, fileName, readHeader } from './format.ts'
import { FIRST_MANIFEST, writeManifest } from './manifest.ts'
import { END_BYTES } from './wal-frame.ts'
import { SEGMENT_START, segmentStart } from './wal-segment.ts'

/** The number of a store's first segment. */
const FIRST_SEGMENT = FIRST_MANIFEST.walSegment
/** The length of a segment without frames. */
const EMPTY_BYTES = SEGMENT_START + END_BYTES

/** A new store id: 16 random bytes in hex. Copies and backups of the store keep it. */
export function newStoreId(): string {
  return randomBytes(16).toString('hex')
}

/** Creates an empty store: the first segment, then the manifest that names it. It replaces files of an interrupted creation. */
export async function createStore(disk: Disk, storeId: string): Promise<void> {
  const names = disk.list()
  const manifest = fileName('M', FIRST_MANIFEST.generation)
  if (names.includes(manifest)) {
    disk.remove(manifest)
    // A manifest without its segment would look like a store that lost its log.
    disk.syncFolder()
  }
  const name = fileName('W', FIRST_SEGMENT)
  if (names.includes(name)) disk.remove(name)
  const file = disk.open(name, 'create')
  try {
    writeAll(file, segmentStart(FIRST_SEGMENT, storeId, 0), 0)
    await syncOrFail(file)
  } finally {
    file.close()
  }
  disk.syncFolder()
  await writeManifest(disk, storeId, FIRST_MANIFEST, true)
}

/**
 * The id of a store without a valid manifest, if its log is complete from the first segment on and so replaces the manifest.
 * Undefined if no store was created here. Throws `CORRUPT` if data is lost.
 */
export function storeIdWithoutManifest(disk: Disk): string | undefined {
  const names = disk.list()
  const segments = names.map(name => fileId('W', name)).filter(id => id !== undefined)
  const isLost =
    names.some(name => fileId('D', name) !== undefined) ||
    names.includes(fileName('M', 1)) ||
    (segments.length > 0 && !segments.includes(FIRST_SEGMENT)) ||
    (segments.length === 0 && names.includes(fileName('M', 0)))
  if (isLost) {
    throw corrupt(fileName('M', 0), 0, 'no manifest can be read, and the log does not hold all data')
  }
  if (segments.length === 0) return undefined
  const file = disk.open(fileName('W', FIRST_SEGMENT), 'read')
  try {
    const buffer = Buffer.alloc(file.size())
    const bytes = buffer.subarray(0, file.read(buffer, 0))
    // Either the creation was interrupted, or nothing was stored.
    const isEmpty = segments.length === 1 && bytes.length <= EMPTY_BYTES
    return isEmpty && !isOfOtherFormat(bytes) ? undefined : readHeader('W', FIRST_SEGMENT, bytes).storeId
  } finally {
    file.close()
  }
}

function isOfOtherFormat(bytes: Buffer): boolean {
  try {
    readHeader('W', FIRST_SEGMENT, bytes)
    return false
  } catch (error) {
    return !(error instanceof AnnalsError && error.code === 'CORRUPT')
  }
}
