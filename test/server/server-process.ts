import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const PROGRAM = fileURLToPath(new URL('server-process.mjs', import.meta.url))

/** A server in a separate process, which can be killed and started again with the same address and folder. */
export class ServerProcess {
  url = ''
  readonly #folder = mkdtempSync(join(tmpdir(), 'annals-server-'))
  #child: ChildProcess | undefined
  #port = 0

  async start(): Promise<void> {
    const child = spawn(process.execPath, [PROGRAM, this.#folder, `${this.#port}`], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#child = child
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })
    const started = once(lines, 'line')
    const failed = once(child, 'exit').then(([code]) => {
      throw new Error(`the server ended with ${code}`)
    })
    const [url] = (await Promise.race([started, failed])) as [string]
    failed.catch(() => {})
    this.url = url
    this.#port = Number(new URL(url).port)
  }

  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<number | null> {
    const child = this.#child as ChildProcess
    const ended = once(child, 'exit')
    child.kill(signal)
    const [code] = await ended
    return code
  }

  async remove(): Promise<void> {
    if (this.#child?.exitCode === null && this.#child.signalCode === null) await this.end('SIGKILL')
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
