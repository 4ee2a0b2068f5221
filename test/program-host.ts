import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const HOST: string = fileURLToPath(new URL('program-host.mjs', import.meta.url))

export interface Outcome {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface ProgramCall {
  readonly program: string
  readonly args: readonly string[]
  readonly cwd: string
  readonly env: NodeJS.ProcessEnv
  readonly input?: string | Uint8Array
}

/** A process that runs short programs one after the other. */
export class ProgramHost {
  readonly #process: ChildProcess = fork(HOST, { execArgv: [], serialization: 'advanced' })
  #last: Promise<unknown> = Promise.resolve()
  #calls = 0

  get isBusy(): boolean {
    return this.#calls > 0
  }

  run(call: ProgramCall): Promise<Outcome> {
    this.#calls++
    const outcome = this.#last.then(() => this.#runNow(call)).finally(() => this.#calls--)
    this.#last = outcome.catch(() => undefined)
    return outcome
  }

  stop(): void {
    this.#process.kill('SIGKILL')
  }

  #runNow(call: ProgramCall): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const onExit = (code: number | null, signal: string | null): void =>
        reject(new Error(`the process ended with ${code ?? signal}: ${call.program} ${call.args.join(' ')}`))
      this.#process.once('exit', onExit)
      this.#process.once('message', outcome => {
        this.#process.off('exit', onExit)
        resolve(outcome as Outcome)
      })
      this.#process.send({ input: '', ...call })
    })
  }
}
