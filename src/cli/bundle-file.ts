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
import { usageError } from './command.ts'
import { shellWord } from './shell-word.ts'
import type { Terminal } from './terminal.ts'

export const BUNDLE_ARGUMENT = 'a file that `annals export` wrote, or - to read stdin'
const HOW_TO_MAKE_ONE = '`annals export RUN -o FILE` writes a bundle'

/** A bundle that can be read more than once. */
export interface BundleFile {
  readonly bytes: number
  read(): AsyncIterable<Uint8Array>
}

/** Copies piped input into a temporary file first, because a bundle may be read twice. */
export async function withBundle<T>(path: string, work: (file: BundleFile) => Promise<T>): Promise<T> {
  const isPiped = path === '-'
  if (!isPiped && isFile(path)) return work(bundleAt(path, path))
  const folder = mkdtempSync(join(tmpdir(), 'annals-bundle-'))
  const remove = (): void => rmSync(folder, { recursive: true, force: true })
  // Ctrl-C ends the process without running `finally`.
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

/** False for input that can be read only once, such as a named pipe. */
function isFile(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats !== undefined && !stats.isDirectory()) return stats.isFile()
  const problem = stats === undefined ? `there is no file ${path}` : `${path} is a folder`
  throw usageError(`${problem}; ${HOW_TO_MAKE_ONE}, and - reads one from stdin`, { path })
}

/** Every bundle begins with this. */
const BEGINNING = '{"annals-bundle":'
const GZIP = '\x1f\x8b'

/** Refuses a file of another kind: reporting it as changed would be a false alarm. */
function bundleAt(path: string, name: string): BundleFile {
  const start = startOf(path, name)
  // A file cut off within the first bytes is a changed bundle, not a file of another kind.
  if (start !== '' && BEGINNING.startsWith(start)) {
    return { bytes: statSync(path).size, read: () => createReadStream(path) }
  }
  const unzip = `gunzip -c ${name === 'stdin' ? '' : `${shellWord(name)} `}| annals verify-bundle -`
  const why = start.startsWith(GZIP)
    ? `it is compressed with gzip; run: ${unzip}`
    : `${start === '' ? 'it is empty' : 'it does not begin like one'}; ${HOW_TO_MAKE_ONE}`
  throw usageError(`NOT A BUNDLE: ${name}: ${why}`, { path: name })
}

function startOf(path: string, name: string): string {
  let descriptor: number | undefined
  try {
    descriptor = openSync(path, 'r')
    const bytes = Buffer.alloc(BEGINNING.length)
    return bytes.toString('latin1', 0, readSync(descriptor, bytes))
  } catch (error) {
    const { message } = error as NodeJS.ErrnoException
    throw new AnnalsError('IO_ERROR', `cannot read ${name}: ${message}`, { path: name }, error)
  } finally {
    if (descriptor !== undefined) closeSync(descriptor)
  }
}

const STEP_BYTES = 8 * 1024 * 1024

/** Passes the chunks on and shows progress in the terminal. */
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

export function megabytes(bytes: number): string {
  return `${Math.floor(bytes / 1_000_000).toLocaleString('en')} MB`
}
