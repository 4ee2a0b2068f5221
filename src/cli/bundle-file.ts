import {
  closeSync,
  createReadStream,
  createWriteStream,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  statSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { AnnalsError } from '../index.ts'
import { shellWord } from './shell-word.ts'
import type { Terminal } from './terminal.ts'

/** Where a bundle comes from. What is piped in is put into a file first, as it may be read twice. */
export interface BundleFile {
  readonly bytes: number
  read(): AsyncIterable<Uint8Array>
}

export async function withBundle<T>(path: string, work: (file: BundleFile) => Promise<T>): Promise<T> {
  const isPiped = path === '-'
  if (!isPiped && isFile(path)) return work(bundleAt(path, path))
  const folder = mkdtempSync(join(tmpdir(), 'annals-bundle-'))
  const remove = (): void => rmSync(folder, { recursive: true, force: true })
  // Also if somebody interrupts.
  process.once('exit', remove)
  try {
    const spooled = join(folder, 'bundle')
    await pipeline(isPiped ? process.stdin : createReadStream(path), createWriteStream(spooled))
    return await work(bundleAt(spooled, isPiped ? 'stdin' : path))
  } finally {
    process.off('exit', remove)
    remove()
  }
}

/** False for what can be read once, such as a named pipe. */
function isFile(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats !== undefined && !stats.isDirectory()) return stats.isFile()
  const what = stats === undefined ? 'there is no file' : 'that is a folder:'
  const message = `${what} ${path}; a bundle is what \`annals export RUN -o FILE\` writes, and - reads it from a pipe`
  throw new AnnalsError('INVALID_ARGUMENT', message, { path })
}

/** How every bundle begins. */
const BEGINNING = '{"annals-bundle":'
const GZIP = '\x1f\x8b'

/** Refuses a file of another kind: to call it changed would be a false alarm. */
function bundleAt(path: string, name: string): BundleFile {
  const start = startOf(path, name)
  // One that is cut off in its first bytes is a bundle that was changed.
  if (start !== '' && BEGINNING.startsWith(start)) {
    return { bytes: statSync(path).size, read: () => createReadStream(path) }
  }
  const unzip = `gunzip -c ${name === 'stdin' ? '' : `${shellWord(name)} `}| annals verify-bundle -`
  const why = start.startsWith(GZIP)
    ? `it is compressed with gzip; type: ${unzip}`
    : `${start === '' ? 'it is empty' : 'it does not begin like one'}; a bundle is what \`annals export RUN -o FILE\` writes`
  throw new AnnalsError('INVALID_ARGUMENT', `NOT A BUNDLE: ${name}: ${why}`, { path: name })
}

function startOf(path: string, name: string): string {
  let descriptor: number | undefined
  try {
    descriptor = openSync(path, 'r')
    const bytes = Buffer.alloc(BEGINNING.length)
    return bytes.toString('latin1', 0, readSync(descriptor, bytes))
  } catch (error) {
    const { message } = error as NodeJS.ErrnoException
    throw new AnnalsError('IO_ERROR', `can't read ${name}: ${message}`, { path: name }, error)
  } finally {
    if (descriptor !== undefined) closeSync(descriptor)
  }
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
