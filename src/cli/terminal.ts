import { writeSync } from 'node:fs'
import pc from 'picocolors'
import { safeJson, safeLine } from './safe-text.ts'

type Colors = ReturnType<typeof pc.createColors>

/**
 * Where a command speaks to: people in a terminal, or programs in a pipe. But for `raw`, each text becomes one line in
 * which no character is left that a terminal would act upon.
 */
export interface Terminal {
  /** A line of what was asked for. Resolves when there is room for more, so that a slow reader costs no memory. */
  line(text: string): Promise<void>
  /** The same as it is, without a line break. */
  raw(bytes: string | Uint8Array): Promise<void>
  json(value: unknown): Promise<void>
  /** A line on stderr: notes, problems. */
  note(text: string): void
  /** Draws over the last one; nothing outside of a terminal. */
  progress(text: string): void
  readonly colors: Colors
  /** For notes. */
  readonly noteColors: Colors
  /** Of the terminal; undefined in a pipe, where nothing is cut. */
  readonly columns: number | undefined
  readonly env: NodeJS.ProcessEnv
}

const COLUMNS_DEFAULT = 80
const TURN_BYTES = 1024 * 1024

export function processTerminal(): Terminal {
  const { stdout, stderr, env } = process
  // A reader that has seen enough, such as head, is no failure: there is nobody left to tell.
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
    // A pipe takes what it is given at once, and a store answers from memory: without a turn of the event loop now and
    // then what was written would not be let go of, and Ctrl-C would not be heard.
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
    // Of a terminal that does not know how wide it is, Node says 0.
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
    writeSync(2, `annals: can't write: ${error.message}\n`)
  } finally {
    process.exit(1)
  }
}
