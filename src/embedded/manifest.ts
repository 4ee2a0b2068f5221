import { crc32 } from 'node:zlib'
import { AnnalsError } from '../core/errors.ts'
import { type Disk, syncOrFail, writeAll } from '../disk/disk.ts'
import type { FileUse } from './data-files.ts'
import { checkHeader, fileName, HEADER_BYTES, header } from './format.ts'

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
  readonly walSegment: number
  /** Of the last frame before that: the log that follows has to refer to it. */
  readonly walCrc: number
  readonly nextFile: number
  /** As `encodeAddress` gives it, in hex; empty while nothing is stored. */
  readonly directory: string
  readonly files: readonly FileUse[]
}

export interface FoundManifests {
  /** The newest sound one. */
  readonly current: Manifest | undefined
  /** The one before it, if it is sound: what it names must stay. */
  readonly previous: Manifest | undefined
  /** Names of manifests that were there but damaged. */
  readonly damaged: readonly string[]
}

const MANIFEST_BYTES_MAX = 64 * 1024 * 1024
const PREFIX_BYTES = HEADER_BYTES + 8

function encodeManifest(manifest: Manifest): Buffer {
  const text = Buffer.from(JSON.stringify(manifest), 'utf8')
  const bytes = Buffer.concat([header('M', manifest.generation % 2), Buffer.alloc(8), text])
  bytes.writeUInt32LE(text.length, HEADER_BYTES)
  bytes.writeUInt32LE(crc32(text), HEADER_BYTES + 4)
  return bytes
}

/** Writes one of the two, in a new file if asked. Resolves once it is on the device and was read back. */
export async function writeManifest(disk: Disk, manifest: Manifest, anew: boolean): Promise<void> {
  const name = fileName('M', manifest.generation % 2)
  const there = disk.list().includes(name)
  if (there && anew) disk.remove(name)
  const fresh = anew || !there
  const file = disk.open(name, fresh ? 'create' : 'write')
  try {
    const bytes = encodeManifest(manifest)
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

export function readManifests(disk: Disk, sync: boolean): FoundManifests {
  const names = disk.list()
  const found: Manifest[] = []
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
      const manifest = decodeManifest(id, bytes.subarray(0, file.read(bytes, 0)))
      if (manifest === undefined) damaged.push(name)
      else found.push(manifest)
    } finally {
      file.close()
    }
  }
  found.sort((a, b) => b.generation - a.generation)
  return { current: found[0], previous: found[1], damaged }
}

function decodeManifest(id: number, bytes: Buffer): Manifest | undefined {
  try {
    checkHeader('M', id, bytes)
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
  return JSON.parse(text.toString('utf8')) as Manifest
}
