import { createReadStream, createWriteStream, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { AnnalsError } from '../index.ts'
import type { Terminal } from './terminal.ts'

/** Where a bundle comes from: a file, or what is piped in, which is put into a file first, as it may be read twice. */
export interface BundleFile {
  readonly bytes: number
  read(): AsyncIterable<Uint8Array>
}

export async function withBundle<T>(path: string, work: (file: BundleFile) => Promise<T>): Promise<T> {
  if (path !== '-') return work(fileAt(path))
  const folder = mkdtempSync(join(tmpdir(), 'annals-bundle-'))
  const remove = (): void => rmSync(folder, { recursive: true, force: true })
  // Also if somebody interrupts.
  process.once('exit', remove)
  try {
    const spooled = join(folder, 'bundle')
    await pipeline(process.stdin, createWriteStream(spooled))
    return await work(fileAt(spooled))
  } finally {
    process.off('exit', remove)
    remove()
  }
}

function fileAt(path: string): BundleFile {
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats === undefined || stats.isDirectory()) {
    const what = stats === undefined ? 'there is no file' : 'that is a folder:'
    const message = `${what} ${path}; a bundle is what \`annals export RUN -o FILE\` writes, and - reads it from a pipe`
    throw new AnnalsError('INVALID_ARGUMENT', message, { path })
  }
  return { bytes: stats.size, read: () => createReadStream(path) }
}

const STEP_BYTES = 8 * 1024 * 1024

/** The same, telling a person how far it is. */
export async function* watched(
  terminal: Terminal,
  doing: string,
  chunks: AsyncIterable<Uint8Array>,
  total?: number,
): AsyncGenerator<Uint8Array, void, void> {
  let done = 0
  let shown = 0
  for await (const chunk of chunks) {
    yield chunk
    done += chunk.length
    if (done - shown < STEP_BYTES) continue
    shown = done
    const of = total === undefined ? '' : ` of ${megabytes(total)}`
    terminal.progress(`${doing} ${megabytes(done)}${of}`)
  }
  terminal.progress('')
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_000_000).toFixed(0)} MB`
}
