import { crc32 } from 'node:zlib'
import { AnnalsError } from '../core/errors.ts'
import { type Disk, syncOrFail, writeAll } from '../disk/disk.ts'
import type { FileUse } from './data-files.ts'
import { corrupt, fileId, fileName, HEADER_BYTES, header, readHeader, STORE_ID_AT } from './format.ts'

/**
 * A manifest describes a finished checkpoint: the place of the directory's root, the use of each data file, and the log
 * segment where later commits begin. Two manifest files are written alternately, so that one of them is always intact.
 *
 * File format: header, u32 length, u32 crc, JSON.
 */
export interface Manifest {
  /** Counts checkpoints. Its parity chooses between the two files. */
  readonly generation: number
  /** The version of the last commit that the checkpoint contains. */
  readonly version: number
  /** The time of that commit. */
  readonly time: number
  /** The first log segment that recovery reads. It always exists. */
  readonly walSegment: number
  /** The checksum of the last frame before that segment. The next frame must refer to it. */
  readonly walCrc: number
  /** The number of the next data file. */
  readonly nextFile: number
  /** The address of the directory's root, from `encodeAddress`, in hex. Empty while nothing is stored. */
  readonly directory: string
  readonly files: readonly FileUse[]
}

/** The manifest of a new, empty store. */
export const FIRST_MANIFEST: Manifest = {
  generation: 0,
  version: 0,
  time: 0,
  walSegment: 1,
  walCrc: 0,
  nextFile: 1,
  directory: '',
  files: [],
}

/** The result of reading both manifest files. */
export interface FoundManifests {
  /** The id of the store; undefined if neither manifest is valid. */
  readonly storeId: string | undefined
  /** The newest valid manifest. */
  readonly current: Manifest | undefined
  /** The older manifest, if it is valid. The files that it names must be kept. */
  readonly previous: Manifest | undefined
  /** The names of manifest files that exist but are damaged. */
  readonly damaged: readonly string[]
}

const MANIFEST_BYTES_MAX = 64 * 1024 * 1024
const PREFIX_BYTES = HEADER_BYTES + 8

function encodeManifest(manifest: Manifest, storeId: string): Buffer {
  const text = Buffer.from(JSON.stringify(manifest), 'utf8')
  const first = header('M', manifest.generation % 2, { storeId, previous: 0 })
  const bytes = Buffer.concat([first, Buffer.alloc(8), text])
  bytes.writeUInt32LE(text.length, HEADER_BYTES)
  bytes.writeUInt32LE(crc32(text), HEADER_BYTES + 4)
  return bytes
}

/** Writes a manifest over the older one, or to a new file if `anew`. Resolves after it was synced and read back. */
export async function writeManifest(
  disk: Disk,
  storeId: string,
  manifest: Manifest,
  anew: boolean,
): Promise<void> {
  const name = fileName('M', manifest.generation % 2)
  const there = disk.list().includes(name)
  if (there && anew) disk.remove(name)
  const fresh = anew || !there
  const file = disk.open(name, fresh ? 'create' : 'write')
  try {
    const bytes = encodeManifest(manifest, storeId)
    writeAll(file, bytes, 0)
    file.truncate(bytes.length)
    await syncOrFail(file)
    if (fresh) disk.syncFolder()
    const back = Buffer.alloc(bytes.length)
    if (file.read(back, 0) !== bytes.length || !back.equals(bytes)) {
      throw Object.assign(new Error(`${name} differs from the bytes that were written`), { code: 'EIO' })
    }
  } finally {
    file.close()
  }
}

interface Found {
  readonly name: string
  readonly storeId: string
  readonly manifest: Manifest
}

/** Reads both manifests. Throws `CORRUPT` if they belong to different stores. `sync` makes them durable first. */
export function readManifests(disk: Disk, sync: boolean): FoundManifests {
  const names = disk.list()
  const found: Found[] = []
  const damaged: string[] = []
  for (const id of [0, 1]) {
    const name = fileName('M', id)
    if (!names.includes(name)) continue
    const file = disk.open(name, sync ? 'write' : 'read')
    try {
      // The writes of a killed process may be only in the page cache. They must be durable before we depend on them.
      if (sync) file.sync()
      const size = file.size()
      const bytes = Buffer.alloc(Math.min(size, MANIFEST_BYTES_MAX))
      const sound = decodeManifest(id, bytes.subarray(0, file.read(bytes, 0)))
      if (sound === undefined) damaged.push(name)
      else found.push({ name, ...sound })
    } finally {
      file.close()
    }
  }
  found.sort((a, b) => b.manifest.generation - a.manifest.generation)
  const [current, previous] = found
  if (previous !== undefined && previous.storeId !== current.storeId) throw foreign(disk, current, previous)
  return {
    storeId: current?.storeId,
    current: current?.manifest,
    previous: previous?.manifest,
    damaged,
  }
}

/** The error for manifests of two stores. It names the manifest that does not match the log. */
function foreign(disk: Disk, current: Found, previous: Found): AnnalsError {
  const isOurs = ({ storeId, manifest }: Found): boolean => isSegmentOf(disk, storeId, manifest.walSegment)
  const [other, own] = isOurs(current) ? [previous, current] : [current, previous]
  const why = `it belongs to another store, ${other.storeId}; this one is ${own.storeId}`
  return corrupt(other.name, STORE_ID_AT, why)
}

function isSegmentOf(disk: Disk, storeId: string, segment: number): boolean {
  if (!disk.list().some(name => fileId('W', name) === segment)) return false
  const file = disk.open(fileName('W', segment), 'read')
  try {
    const bytes = Buffer.alloc(HEADER_BYTES)
    return readHeader('W', segment, bytes.subarray(0, file.read(bytes, 0))).storeId === storeId
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'CORRUPT') return false
    throw error
  } finally {
    file.close()
  }
}

function decodeManifest(id: number, bytes: Buffer): Omit<Found, 'name'> | undefined {
  let storeId: string
  try {
    storeId = readHeader('M', id, bytes).storeId
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'CORRUPT') return undefined
    throw error
  }
  if (bytes.length < PREFIX_BYTES) return undefined
  const length = bytes.readUInt32LE(HEADER_BYTES)
  // The checksum of no bytes is 0 too. So a header followed by zeros, an unfinished write, would pass the checks below.
  if (length === 0 || PREFIX_BYTES + length !== bytes.length) return undefined
  const text = bytes.subarray(PREFIX_BYTES)
  if (crc32(text) !== bytes.readUInt32LE(HEADER_BYTES + 4)) return undefined
  return { storeId, manifest: JSON.parse(text.toString('utf8')) as Manifest }
}
