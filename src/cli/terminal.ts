import { writeSync } from 'node:fs'
import pc from 'picocolors'
import { safeJson, safeLine } from './safe-text.ts'

type Colors = ReturnType<typeof pc.createColors>

/**
 * The output of a command: a terminal, or a pipe to another program. Every text except those for `raw` becomes one line
 * without characters that a terminal would interpret.
 */
export interface Terminal {
  /** Writes a line to stdout. Resolves when there is room for more, so that a slow reader costs no memory. */
  line(text: string): Promise<void>
  /** Writes to stdout without escaping and without a line break. */
  raw(bytes: string | Uint8Array): Promise<void>
  json(value: unknown): Promise<void>
  /** Writes a line to stderr. */
  note(text: string): void
  /** Replaces the last progress line on stderr; does nothing if stderr is not a terminal. */
  progress(text: string): void
  readonly colors: Colors
  /** Colours for stderr. */
  readonly noteColors: Colors
  /** Width of the terminal; undefined in a pipe, where nothing is cut. */
  readonly columns: number | undefined
  readonly env: NodeJS.ProcessEnv
}

const COLUMNS_DEFAULT = 80
const TURN_BYTES = 1024 * 1024

export function processTerminal(): Terminal {
  const { stdout, stderr, env } = process
  // A reader such as `head` may close the pipe early.
  stdout.on('error', endQuietly)
  stderr.on('error', endQuietly)
  let drawn = false
  let written = 0
  const clear = (): string => {
    const text = drawn ? '\r\x1b[K' : ''
    drawn = false
    return text
  }
  const raw = (bytes: string | Uint8Array): Promise<void> => {
    if (drawn) stderr.write(clear())
    written += bytes.length
    const hasRoom = stdout.write(bytes)
    if (!hasRoom) return drained(stdout)
    if (written < TURN_BYTES) return Promise.resolve()
    // Writing to a pipe and reading from memory never wait. Without a turn of the event loop, memory would grow and Ctrl-C
    // would have no effect.
    written = 0
    return new Promise(resolve => setImmediate(resolve))
  }
  const outColored = isColored(stdout, env)
  const errColored = isColored(stderr, env)
  return {
    line: text => raw(`${safeLine(text, outColored)}\n`),
    raw,
    json: value => raw(`${safeJson(value, 2)}\n`),
    note: text => {
      stderr.write(`${clear()}${safeLine(text, errColored)}\n`)
    },
    progress: text => {
      if (stderr.isTTY !== true) return
      stderr.write(`${clear()}${safeLine(text, errColored)}`)
      drawn = text !== ''
    },
    colors: pc.createColors(outColored),
    noteColors: pc.createColors(errColored),
    // Node reports 0 for a terminal that does not know its width.
    columns: stdout.isTTY === true ? stdout.columns || COLUMNS_DEFAULT : undefined,
    env,
  }
}

function isColored(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv): boolean {
  if (env['NO_COLOR'] !== undefined && env['NO_COLOR'] !== '') return false
  return stream.isTTY === true && env['TERM'] !== 'dumb'
}

function drained(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise(resolve => stream.once('drain', resolve))
}

const SIGPIPE_EXIT = 141

function endQuietly(error: NodeJS.ErrnoException): void {
  if (error.code === 'EPIPE') process.exit(SIGPIPE_EXIT)
  try {
    writeSync(2, `annals: cannot write: ${error.message}\n`)
  } finally {
    process.exit(1)
  }
}
