import { AnnalsError } from '../core/errors.ts'
import { type Disk, writeAll } from '../disk/disk.ts'
import { corrupt, fileId, fileName } from './format.ts'
import { type Manifest, writeManifest } from './manifest.ts'
import { segmentStart } from './wal-segment.ts'

const CHUNK_BYTES = 1024 * 1024

/**
 * Copies the files that a manifest names into an empty folder. It writes the manifest last, so that an interrupted copy can't
 * be opened. With `log` it also copies the log segments, which nothing may write to meanwhile.
 */
export async function copyCheckpoint(
  from: Disk,
  to: Disk,
  storeId: string,
  manifest: Manifest | undefined,
  log: boolean,
): Promise<void> {
  await to.lock()
  if (to.list().length > 0) {
    throw new AnnalsError('INVALID_ARGUMENT', 'the backup folder must be empty', { files: to.list() })
  }
  for (const { id, size } of manifest?.files ?? []) await copyFile(from, to, fileName('D', id), size)
  for (const name of log ? from.list() : []) {
    const id = fileId('W', name)
    if (id !== undefined && id >= (manifest?.walSegment ?? 1)) await copyFile(from, to, name)
  }
  if (manifest !== undefined && !log) await beginLog(to, storeId, manifest.walSegment)
  to.syncFolder()
  if (manifest !== undefined) await writeManifest(to, storeId, manifest, true)
}

/** Creates the segment that the manifest names, without frames. The original's frames there are newer than the backup. */
async function beginLog(to: Disk, storeId: string, segment: number): Promise<void> {
  const file = to.open(fileName('W', segment), 'create')
  try {
    writeAll(file, segmentStart(segment, storeId, 0), 0)
    await file.syncLater()
  } finally {
    file.close()
  }
}

/** Copies the first `bytes` bytes of a file, or the whole file. */
async function copyFile(from: Disk, to: Disk, name: string, bytes?: number): Promise<void> {
  const source = from.open(name, 'read')
  const target = to.open(name, 'create')
  try {
    const size = bytes ?? source.size()
    const chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES)
    for (let at = 0; at < size; at += CHUNK_BYTES) {
      const piece = chunk.subarray(0, Math.min(CHUNK_BYTES, size - at))
      const got = source.read(piece, at)
      if (got < piece.length) throw corrupt(name, at + got, `it ends early: ${size} bytes were written`)
      const written = await target.writeLater(piece, at)
      if (written < piece.length) writeAll(target, piece.subarray(written), at + written)
    }
    await target.syncLater()
  } finally {
    source.close()
    target.close()
  }
}
