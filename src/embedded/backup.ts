import { AnnalsError } from '../core/errors.ts'
import { type Disk, writeAll } from './disk.ts'
import { fileName } from './format.ts'
import { type Manifest, writeManifest } from './manifest.ts'

const CHUNK_BYTES = 1024 * 1024

/** Copies the files that a manifest names, and the manifest last: an interrupted copy is no store. */
export async function copyCheckpoint(from: Disk, to: Disk, manifest: Manifest | undefined): Promise<void> {
  to.lock()
  try {
    if (to.list().length > 0) {
      throw new AnnalsError('INVALID_ARGUMENT', 'the folder of a backup must be empty', { files: to.list() })
    }
    if (manifest === undefined) return
    for (const { id, size } of manifest.files) await copyFile(from, to, fileName('D', id), size)
    to.syncFolder()
    await writeManifest(to, manifest)
  } finally {
    to.close()
  }
}

async function copyFile(from: Disk, to: Disk, name: string, size: number): Promise<void> {
  const source = from.open(name, 'read')
  const target = to.open(name, 'create')
  try {
    const chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES)
    for (let at = 0; at < size; at += CHUNK_BYTES) {
      const piece = chunk.subarray(0, Math.min(CHUNK_BYTES, size - at))
      source.read(piece, at)
      const written = await target.writeLater(piece, at)
      if (written < piece.length) writeAll(target, piece.subarray(written), at + written)
    }
    await target.syncLater()
  } finally {
    source.close()
    target.close()
  }
}
