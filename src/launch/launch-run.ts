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
import { openRun } from './run-folder.ts'
import { RunLlm } from './run-llm.ts'
import { RequestWatch, type RunRequest } from './run-requests.ts'
import { openFeed, settleMsOf } from './run-telemetry.ts'
import { Slots } from './slots.ts'
import { writeSnapshot } from './snapshot.ts'
import { isTerminal } from './states.ts'
import type { TelemetryFeed } from './telemetry-feed.ts'
import { outcomeOf, type Workbench } from './workbench.ts'

export type LaunchStatus = 'completed' | 'failed' | 'cancelled' | 'stopped'

export interface LaunchResult {
  readonly runId: string
  readonly status: LaunchStatus
  /** The state that the run is in. */
  readonly state: string
  readonly generation: number
  /** Why it failed. */
  readonly error?: LaunchFailure
}

/** The runs that this process works on, by folder. */
const active = new Map<string, LaunchRun>()

export function activeRun(folder: string): LaunchRun | undefined {
  return active.get(folder)
}

/**
 * A run at work in this process: working → (paused → working)* → ended. It
 * holds the lock of its folder until `result` has settled.
 */
export class LaunchRun {
  readonly runId: string
  readonly folder: string
  readonly #launch: Launch
  readonly #options: LaunchOptions
  readonly #log: EventLog
  readonly #disk: Disk
  readonly #slots: Slots
  readonly #controller = new AbortController()
  readonly #mirror: LedgerMirror | undefined
  readonly #telemetry: TelemetryFeed | undefined
  /** Aborts when telemetry has had its time. */
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
  constructor(
    launch: Launch,
    runId: string,
    folder: string,
    options: LaunchOptions,
    log: EventLog,
    disk: Disk,
  ) {
    this.runId = runId
    this.folder = folder
    this.#launch = launch
    this.#options = options
    this.#log = log
    this.#disk = disk
    const { db, tenant = 'default', project = 'default', environment = 'default' } = options
    this.#mirror = db === undefined ? undefined : new LedgerMirror(db, { tenant, project, environment })
    const { clock = Date.now, random, llm } = options
    const told = {
      ...{ launch, disk, log: options.log, clock, warn: this.#warn, environment: options.environment },
      signal: this.#telemetryEnd.signal,
    }
    this.#telemetry = openFeed(options.telemetry, told)
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

  /** How the run ends. Never rejects for what nodes, workers and gates do; only if its log or the ledger fails. */
  get result(): Promise<LaunchResult> {
    return this.#result as Promise<LaunchResult>
  }

  /** How the run stands. */
  get state(): LaunchState {
    return this.journal.state
  }

  /** Takes no new work; resolves when what is running has ended. */
  async pause(reason?: string): Promise<void> {
    this.#slots.close()
    await this.journal.append('RUN_PAUSED', reason === undefined ? {} : { reason })
    await this.#slots.quiet()
  }

  /** Goes on after a pause. */
  async unpause(): Promise<void> {
    if (!this.state.paused) {
      throw new AnnalsError('ILLEGAL_STATE', `run ${JSON.stringify(this.runId)} is not paused`, {
        runId: this.runId,
      })
    }
    const { journal } = this
    const resumed = { from_state: this.state.run_state, cause: 'unpause' } as const
    // Not the run's own span: its node goes on, as nothing was cut off.
    await journal.append('RUN_RESUMED', resumed, {
      spanId: journal.newHex(8),
      parentSpanId: journal.rootSpanId,
    })
    this.#slots.open()
  }

  /** Calls everything off; resolves when the run has ended. */
  cancel(reason = 'cancelled'): Promise<LaunchResult> {
    this.#endBy({ kind: 'cancel', reason })
    return this.result
  }

  /** Takes no new work, lets what is running end, and leaves the run to be resumed; resolves when its folder is free. */
  async stop(): Promise<LaunchResult> {
    this.#slots.close()
    await this.#slots.quiet()
    this.#endBy({ kind: 'stop' })
    return this.result
  }

  /** @internal What the log holds already, for those that follow it. */
  recall(events: readonly LaunchEvent[]): void {
    for (const event of events) {
      this.#mirror?.push(event)
      this.#telemetry?.push(event, true)
    }
  }

  /** @internal Works until the run has ended. */
  begin(isResumed: boolean, prepare: () => Promise<void>): Promise<void> {
    active.set(this.folder, this)
    const { signal } = this.#options
    const onAbort = (): void => this.#endBy({ kind: 'cancel', reason: String(signal?.reason) })
    const told = this.#telemetry?.begin() ?? Promise.resolve()
    // A ledger that refuses the run is heard of now, not after all the work.
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
    // Whoever started it hears of a failed preparation; nobody may ever ask for the result.
    this.#result.catch(() => undefined)
    return prepared.catch(async error => {
      await this.#result?.catch(() => undefined)
      throw error
    })
  }

  /** @internal */
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

  /** What earlier runs could not tell. */
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

  /** The run has ended: from here on nobody shall wait for a service that hangs, however much is to be told. */
  #limitTelemetry(): void {
    const settleMs = settleMsOf(this.#options.telemetry)
    this.#telemetryTimer ??= setTimeout(() => this.#telemetryEnd.abort(), settleMs)
  }

  /** What another process asks for. */
  async #obey(request: RunRequest): Promise<void> {
    if (request.kind === 'pause') await this.pause(request.reason)
    else if (request.kind === 'unpause') await this.unpause()
    else {
      const { status, state } = await this.cancel(request.reason)
      if (status === 'cancelled') return
      const message = `run ${JSON.stringify(this.runId)} is ${state}: it has ended already`
      throw new AnnalsError('ILLEGAL_STATE', message, { runId: this.runId, state })
    }
  }

  #endBy(ending: Ending): void {
    if (!this.#controller.signal.aborted) this.#controller.abort(new LaunchEnding(ending))
    // Ending is not new work: whoever waits at the door may see that it is over.
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
