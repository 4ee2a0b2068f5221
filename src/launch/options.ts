import { AnnalsError } from '../core/errors.ts'
import type { Random } from '../core/id.ts'
import { checkFunction, checkOptions, checkSignal } from '../core/options.ts'
import type { LaunchObserver, LlmFactory } from './context.ts'
import type { MirrorDatabase } from './ledger-mirror.ts'
import { checkLlmEndpoint, type LlmEndpoint } from './llm/llm-options.ts'
import type { LogDatabase } from './log-database.ts'
import type { OpenDisk } from './run-folder.ts'
import { checkTelemetry, type TelemetryOptions } from './run-telemetry.ts'
import type { StateModel } from './states.ts'

/** What of a database a launch uses: what `open` gives has it all. */
export interface LaunchDatabase extends MirrorDatabase {
  readonly events: LogDatabase
}

/** Where the files and the log of a run are. */
export interface LaunchPlace {
  /** The folder in which each run has its own. */
  readonly runsFolder: string
  /** @internal For tests: opens another disk in place of the runs' folder. */
  readonly openDisk?: OpenDisk
  /** `database` keeps the log in `db.events`; the rest stays in the run's folder. `file` without it. */
  readonly log?: 'file' | 'database'
  /** Where the run is shown in the ledger and the index of runs. */
  readonly db?: LaunchDatabase
}

export interface LaunchOptions extends LaunchPlace {
  /**
   * The models of `ctx.llm`. Recorded answers are not asked for again unless `mode` says so; a factory gives clients of
   * your own.
   */
  readonly llm?: LlmEndpoint | LlmFactory
  readonly observer?: LaunchObserver
  /**
   * The service that is told of the run and its parts; it can't fail a run. Without it `TELEMETRY_API_URL` names one, with
   * `TELEMETRY_API_AUTH_TOKEN`; `false` for none.
   */
  readonly telemetry?: TelemetryOptions | false
  /** Aborting it cancels the run. */
  readonly signal?: AbortSignal
  /** Of the run in the ledger; `default` without them. */
  readonly tenant?: string
  readonly project?: string
  readonly environment?: string
  /** Milliseconds since 1970. */
  readonly clock?: () => number
  /** Where ids come from. */
  readonly random?: Random
  /** Hears what goes wrong and does not concern the run; a warning of the process without it. */
  readonly warn?: (message: string) => void
}

export interface StartOptions extends LaunchOptions {
  /** Names the run's folder; one is made without it. */
  readonly runId?: string
  /** What the run is started with; its nodes, workers and gates see it. */
  readonly config?: { readonly [name: string]: unknown }
}

export interface ResumeOptions extends LaunchOptions {
  /** Does everything again from the first state, whatever state the run is in; its log goes on. */
  readonly force?: boolean
}

export interface ReplayOptions extends LaunchPlace {
  /** Of a launch that has states of its own. */
  readonly states?: StateModel
  /** The state after this many events; after all without it. */
  readonly atEvent?: number
}

export interface CancelOptions extends LaunchOptions {
  readonly states?: StateModel
  readonly reason?: string
}

export interface PauseOptions {
  readonly runsFolder: string
  readonly reason?: string
}

const PLACE = ['runsFolder', 'openDisk', 'log', 'db']
const COMMON = [
  ...PLACE,
  ...[
    'llm',
    'observer',
    'signal',
    'tenant',
    'project',
    'environment',
    'clock',
    'random',
    'warn',
    'telemetry',
  ],
]
const NAMES: Readonly<Record<string, readonly string[]>> = {
  startLaunch: [...COMMON, 'runId', 'config'],
  resumeLaunch: [...COMMON, 'force'],
  replayLaunch: [...PLACE, 'states', 'atEvent'],
  cancelLaunch: [...COMMON, 'states', 'reason'],
}

export function checkLaunchOptions(what: string, options: LaunchOptions | ReplayOptions): void {
  checkOptions(what, options, NAMES[what])
  const { log, db } = options
  if (log !== undefined && log !== 'file' && log !== 'database') {
    throw new AnnalsError('INVALID_ARGUMENT', "log must be 'file' or 'database'", { name: 'log', value: log })
  }
  if (log === 'database' && db === undefined) {
    throw new AnnalsError('INVALID_ARGUMENT', "log: 'database' needs a db", { name: 'db' })
  }
  const { signal, llm, clock, warn } = options as LaunchOptions
  checkSignal(signal)
  for (const [name, value] of Object.entries({ clock, warn })) {
    if (value !== undefined) checkFunction(name, value)
  }
  if (llm !== undefined && typeof llm !== 'function') checkLlmEndpoint(llm)
  checkTelemetry((options as LaunchOptions).telemetry)
}
