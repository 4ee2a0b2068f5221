import { resolve } from 'node:path'
import { AnnalsError } from '../core/errors.ts'
import type { Disk } from '../disk/disk.ts'
import { Artifacts } from './artifacts.ts'
import type { LaunchDescription, LaunchObserver } from './context.ts'
import type { Launch } from './definition.ts'
import type { LaunchEvent, LaunchFailure } from './events.ts'
import { flushTelemetry } from './flush-telemetry.ts'
import { Journal } from './journal.ts'
import type { LaunchState } from './launch-state.ts'
import { LedgerMirror } from './ledger-mirror.ts'
import type { EventLog } from './log.ts'
import type { LaunchOptions } from './options.ts'
import { type Ending, LaunchEnding, Orchestrator } from './orchestrator.ts'
import { openRun, runFolder } from './run-folder.ts'
import { RunLlm } from './run-llm.ts'
import { RequestWatch, type RunRequest } from './run-requests.ts'
import { openFeed, settleMsOf } from './run-telemetry.ts'
import { Slots } from './slots.ts'
import { writeSnapshot } from './snapshot.ts'
import { isTerminal } from './states.ts'
import type { TelemetryFeed } from './telemetry-feed.ts'
import { outcomeOf, type Workbench } from './workbench.ts'

/** How `LaunchRun.result` ended. A `stopped` run can be resumed. */
export type LaunchStatus = 'completed' | 'failed' | 'cancelled' | 'stopped'

/** The result of a run. */
export interface LaunchResult {
  /** The id of the run. */
  readonly runId: string
  /** How the run ended. */
  readonly status: LaunchStatus
  /** The state of the run. */
  readonly state: string
  /** 1, or more after forced restarts. */
  readonly generation: number
  /** Why the run failed. */
  readonly error?: LaunchFailure
}

/** The runs that this process works on, by the path of their folder. */
const active = new Map<string, LaunchRun>()

/** The run of that folder, if this process works on it. */
export function activeRun(folder: string): LaunchRun | undefined {
  return active.get(folder)
}

/**
 * A run that this process works on: working → (paused → working)* → ended. It
 * holds the lock of its folder until `result` has settled.
 */
export class LaunchRun {
  /** The id of the run. */
  readonly runId: string
  /** The path of the run's folder. */
  readonly folder: string
  readonly #launch: Launch
  readonly #options: LaunchOptions
  readonly #log: EventLog
  readonly #disk: Disk
  readonly #slots: Slots
  readonly #controller = new AbortController()
  readonly #mirror: LedgerMirror | undefined
  readonly #telemetry: TelemetryFeed | undefined
  /** Aborts when the time for telemetry is up. */
  readonly #telemetryEnd = new AbortController()
  #telemetryTimer: NodeJS.Timeout | undefined
  #requests: RequestWatch | undefined
  #result: Promise<LaunchResult> | undefined
  #failure: LaunchFailure | undefined
  /** @internal */
  readonly journal: Journal
  /** @internal */
  readonly bench: Workbench
  /** @internal */
  readonly orchestrator: Orchestrator

  /** @internal Use `startLaunch` or `resumeLaunch`. */
  constructor(launch: Launch, runId: string, options: LaunchOptions, log: EventLog, disk: Disk) {
    const folder = runFolder(options, runId)
    this.runId = runId
    this.folder = folder
    this.#launch = launch
    this.#options = options
    this.#log = log
    this.#disk = disk
    const { db, tenant = 'default', project = 'default', environment = 'default' } = options
    this.#mirror = db === undefined ? undefined : new LedgerMirror(db, { tenant, project, environment })
    const { clock = Date.now, random, llm } = options
    this.#telemetry = openFeed(options.telemetry, {
      launch,
      disk,
      log: options.log,
      clock,
      warn: this.#warn,
      environment: options.environment,
      signal: this.#telemetryEnd.signal,
    })
    this.journal = new Journal({
      runId,
      model: launch.states,
      log,
      writeSnapshot: snapshot => writeSnapshot(disk, snapshot),
      onEvent: (event, index) => this.#onEvent(event, index),
      clock,
      ...(random === undefined ? {} : { random }),
    })
    this.#slots = new Slots(launch.concurrency, limitsOf(launch))
    this.bench = {
      launch,
      folder,
      disk,
      journal: this.journal,
      artifacts: new Artifacts(disk, this.journal),
      slots: this.#slots,
      signal: this.#controller.signal,
      llm: new RunLlm(llm),
      clock,
      tell: (hook, ...args) => void this.#tell(hook, args),
    }
    this.orchestrator = new Orchestrator(this.bench)
  }

  /** The result of the run. It rejects only if the log or the ledger fails, never for errors of nodes, workers or gates. */
  get result(): Promise<LaunchResult> {
    return this.#result as Promise<LaunchResult>
  }

  /** The current state of the run. */
  get state(): LaunchState {
    return this.journal.state
  }

  /** Starts no new work. Resolves when the running workers have ended. */
  async pause(reason?: string): Promise<void> {
    this.#slots.close()
    await this.journal.append('RUN_PAUSED', reason === undefined ? {} : { reason })
    await this.#slots.quiet()
  }

  /** Continues after a pause. */
  async unpause(): Promise<void> {
    if (!this.state.paused) {
      throw new AnnalsError('ILLEGAL_STATE', `run ${JSON.stringify(this.runId)} is not paused`, {
        runId: this.runId,
      })
    }
    const { journal } = this
    const resumed = { from_state: this.state.run_state, cause: 'unpause' } as const
    // A span of its own, because nothing was interrupted: the node of the current state goes on.
    await journal.append('RUN_RESUMED', resumed, {
      spanId: journal.newHex(8),
      parentSpanId: journal.rootSpanId,
    })
    this.#slots.open()
  }

  /** Aborts all work. Resolves when the run has ended. */
  cancel(reason = 'cancelled'): Promise<LaunchResult> {
    this.#endBy({ kind: 'cancel', reason })
    return this.result
  }

  /** Starts no new work and lets running workers end. Resolves when another process can resume the run. */
  async stop(): Promise<LaunchResult> {
    this.#slots.close()
    await this.#slots.quiet()
    this.#endBy({ kind: 'stop' })
    return this.result
  }

  /** @internal Passes the events of the log to the ledger and to telemetry. */
  recall(events: readonly LaunchEvent[]): void {
    for (const event of events) {
      this.#mirror?.push(event)
      this.#telemetry?.push(event, true)
    }
  }

  /** @internal Prepares the run, and then works on it until it has ended. Resolves when it is prepared. */
  begin(isResumed: boolean, prepare: () => Promise<void>): Promise<void> {
    active.set(this.folder, this)
    const { signal } = this.#options
    const onAbort = (): void => this.#endBy({ kind: 'cancel', reason: String(signal?.reason) })
    const told = this.#telemetry?.begin() ?? Promise.resolve()
    // A ledger that refuses the run fails it now, not after all the work.
    const prepared = told.then(prepare).then(() => this.#mirror?.settle())
    this.#result = prepared
      .then(async () => {
        if (signal?.aborted === true) onAbort()
        else signal?.addEventListener('abort', onAbort, { once: true })
        const requests = openRun(this.runId, this.#options)
        this.#requests = new RequestWatch(requests, request => this.#obey(request), this.#warn)
        return this.#work(isResumed)
      })
      .finally(async () => {
        signal?.removeEventListener('abort', onAbort)
        this.#requests?.close()
        this.#limitTelemetry()
        await this.#telemetry?.settle()
        clearTimeout(this.#telemetryTimer)
        active.delete(this.folder)
        await this.release()
      })
    // The caller gets a failed preparation from `begin`. It may never ask for the result.
    this.#result.catch(() => undefined)
    return prepared.catch(async error => {
      await this.#result?.catch(() => undefined)
      throw error
    })
  }

  /** @internal Closes the log and the folder. */
  async release(): Promise<void> {
    await this.#log.close()
    this.#disk.close()
  }

  async #work(isResumed: boolean): Promise<LaunchResult> {
    const { clock } = this.bench
    const othersFlushed = this.#flushOthers()
    const description = this.#describe(isResumed)
    this.bench.tell('launchStarted', description)
    await this.orchestrator.drive()
    this.#limitTelemetry()
    const result = this.#resultNow()
    await this.#tell('launchEnded', [
      description,
      {
        name: this.#launch.name,
        id: this.runId,
        spanId: description.spanId,
        startedAt: description.startedAt,
        durationMs: clock() - description.startedAt,
        ...outcomeOf(this.#failure),
        ...(result.status === 'cancelled' || result.status === 'stopped' ? { outcome: 'cancelled' } : {}),
      },
    ])
    await this.#mirror?.settle()
    await othersFlushed
    return result
  }

  /** Sends the telemetry that earlier runs left behind. */
  async #flushOthers(): Promise<void> {
    const { runsFolder, openDisk, telemetry, db } = this.#options
    try {
      await flushTelemetry({
        runsFolder: resolve(runsFolder),
        ...(openDisk === undefined ? {} : { openDisk }),
        ...(db === undefined ? {} : { db }),
        warn: this.#warn,
        signal: this.#telemetryEnd.signal,
        ...(telemetry === undefined ? {} : { telemetry }),
      })
    } catch (error) {
      this.#warn(`the telemetry of earlier runs can't be sent: ${String(error)}`)
    }
  }

  #resultNow(): LaunchResult {
    const { run_state, generation } = this.state
    const { done, failed, cancelled } = this.#launch.states
    const statuses: Readonly<Record<string, LaunchStatus>> = {
      [done]: 'completed',
      [failed]: 'failed',
      [cancelled]: 'cancelled',
    }
    const status = isTerminal(this.#launch.states, run_state) ? statuses[run_state] : 'stopped'
    const error = this.#failure === undefined ? {} : { error: this.#failure }
    return { runId: this.runId, status, state: run_state, generation, ...error }
  }

  #describe(isResumed: boolean): LaunchDescription {
    const { traceId, rootSpanId } = this.journal
    const { generation, memory } = this.state
    return {
      runId: this.runId,
      launch: memory.launch,
      launchVersion: memory.launchVersion,
      generation,
      folder: this.folder,
      traceId,
      spanId: rootSpanId,
      isResumed,
      startedAt: this.bench.clock(),
    }
  }

  /** Limits the time for telemetry once the run has ended. A service that hangs must not hold its result back. */
  #limitTelemetry(): void {
    const settleMs = settleMsOf(this.#options.telemetry)
    this.#telemetryTimer ??= setTimeout(() => this.#telemetryEnd.abort(), settleMs)
  }

  /** Acts on a request of another process. */
  async #obey(request: RunRequest): Promise<void> {
    if (request.kind === 'pause') await this.pause(request.reason)
    else if (request.kind === 'unpause') await this.unpause()
    else {
      const { status, state } = await this.cancel(request.reason)
      if (status === 'cancelled') return
      const message = `run ${JSON.stringify(this.runId)} has already ended as ${state}`
      throw new AnnalsError('ILLEGAL_STATE', message, { runId: this.runId, state })
    }
  }

  #endBy(ending: Ending): void {
    if (!this.#controller.signal.aborted) this.#controller.abort(new LaunchEnding(ending))
    // Opened, so that waiting code sees that the run has ended.
    this.#slots.open()
  }

  #onEvent(event: LaunchEvent, index: number): void {
    if (event.type === 'RUN_FAILED') this.#failure = event.payload.error
    this.#mirror?.push(event)
    this.#telemetry?.push(event)
    this.bench.tell('eventAppended', event, index)
    if (event.type === 'LLM_CALL_STARTED') this.bench.tell('llmStarted', event)
    if (event.type === 'LLM_CALL_FINISHED' || event.type === 'LLM_CALL_FAILED') {
      this.bench.tell('llmFinished', event)
    }
  }

  readonly #warn = (message: string): void => {
    const { warn = (text: string) => process.emitWarning(text) } = this.#options
    warn(message)
  }

  async #tell<K extends keyof LaunchObserver>(
    hook: K,
    args: Parameters<NonNullable<LaunchObserver[K]>>,
  ): Promise<void> {
    const { observer } = this.#options
    try {
      const told = observer?.[hook] as ((...args: unknown[]) => unknown) | undefined
      await told?.apply(observer, args)
    } catch (error) {
      this.#warn(`the observer of launch ${this.runId} failed at ${hook}: ${String(error)}`)
    }
  }
}

function limitsOf({ workers }: Launch): ReadonlyMap<string, number> {
  const limits = new Map<string, number>()
  for (const [name, { concurrency }] of workers) if (concurrency !== undefined) limits.set(name, concurrency)
  return limits
}
