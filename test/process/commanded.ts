import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const PROGRAM = fileURLToPath(new URL('commanded.mjs', import.meta.url))

interface Answer {
  readonly value?: unknown
  readonly code?: string
  readonly message?: string
  readonly details?: Readonly<Record<string, unknown>>
}

/** A process with an open store that executes commands one after the other. */
export interface Commanded {
  readonly process: ChildProcess
  tell(...words: readonly unknown[]): Promise<Answer>
  end(): Promise<void>
}

/** Starts the process. `through` is an optional command with arguments that starts it, such as a shell. */
export async function command(
  folder: string,
  options: object = {},
  through: readonly string[] = [],
): Promise<Commanded> {
  const [program, ...args] = [...through, process.execPath, PROGRAM, folder, JSON.stringify(options)]
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]()
  const answer = async (): Promise<Answer> => {
    const { value, done } = await lines.next()
    if (done === true) throw new Error('the process has ended')
    return JSON.parse(String(value)) as Answer
  }
  await answer()
  return {
    process: child,
    tell(...words) {
      child.stdin!.write(`${JSON.stringify(words)}\n`)
      return answer()
    },
    async end() {
      if (child.exitCode !== null || child.signalCode !== null) return
      const exit = once(child, 'exit')
      child.kill('SIGKILL')
      await exit
    },
  }
}
