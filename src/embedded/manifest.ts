import { crc32 } from 'node:zlib'
import { AnnalsError } from '../core/errors.ts'
import { type Disk, syncOrFail, writeAll } from '../disk/disk.ts'
import type { FileUse } from './data-files.ts'
import { corrupt, fileId, fileName, HEADER_BYTES, header, readHeader, STORE_ID_AT } from './format.ts'

/**
 * A manifest is a checkpoint's last word: where the directory's root lies, what
 * the data files hold, and from which segment on the write-ahead log goes
 * beyond it. There are two, written in turn, so that one is whole at any time:
 * header, u32 length, u32 crc, JSON.
 */
export interface Manifest {
  /** Grows by one from checkpoint to checkpoint; its parity chooses the file. */
  readonly generation: number
  /** Of the last commit that the trees hold. */
  readonly version: number
  readonly time: number
  /** The segment that the log goes on with. It is always there. */
  readonly walSegment: number
  /** Of the last frame before that: the log that follows has to refer to it. */
  readonly walCrc: number
  readonly nextFile: number
  /** As `encodeAddress` gives it, in hex; empty while nothing is stored. */
  readonly directory: string
  readonly files: readonly FileUse[]
}

/** What a store is before its first checkpoint. */
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

export interface FoundManifests {
  /** The id of the store that they are of; undefined if there is no sound one. */
  readonly storeId: string | undefined
  /** The newest sound one. */
  readonly current: Manifest | undefined
  /** The one before it, if it is sound: what it names must stay. */
  readonly previous: Manifest | undefined
  /** Names of manifests that were there but damaged. */
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

/** Writes one of the two, in a new file if asked. Resolves once it is on the device and was read back. */
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
      throw Object.assign(new Error(`${name} reads back other bytes than were written`), { code: 'EIO' })
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

export function readManifests(disk: Disk, sync: boolean): FoundManifests {
  const names = disk.list()
  const found: Found[] = []
  const damaged: string[] = []
  for (const id of [0, 1]) {
    const name = fileName('M', id)
    if (!names.includes(name)) continue
    const file = disk.open(name, sync ? 'write' : 'read')
    try {
      // What a killed process wrote may be in the system's memory only. Nobody may build on it before it is on disk.
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

/** Two manifests are of different stores: the log tells which of them does not belong here. */
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
  // Nothing has the checksum 0 as well: a header with zeros behind it is a manifest that was only begun.
  if (length === 0 || PREFIX_BYTES + length !== bytes.length) return undefined
  const text = bytes.subarray(PREFIX_BYTES)
  if (crc32(text) !== bytes.readUInt32LE(HEADER_BYTES + 4)) return undefined
  return { storeId, manifest: JSON.parse(text.toString('utf8')) as Manifest }
}
