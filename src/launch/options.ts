import { invalidArgument } from '../core/errors.ts'
import type { Random } from '../core/id.ts'
import { checkFunction, checkOptions, checkSignal } from '../core/options.ts'
import type { LaunchObserver, LlmFactory } from './context.ts'
import type { MirrorDatabase } from './ledger-mirror.ts'
import { checkLlmEndpoint, type LlmEndpoint } from './llm/llm-options.ts'
import type { LogDatabase } from './log-database.ts'
import type { OpenDisk } from './run-folder.ts'
import { checkTelemetry, type TelemetryOptions } from './run-telemetry.ts'
import type { StateModel } from './states.ts'

/** The part of a database that a launch uses. A database from `open` or `openPostgres` has all of it. */
export interface LaunchDatabase extends MirrorDatabase {
  /** Keeps the log of a run if `log` is `database`. */
  readonly events: LogDatabase
}

/** Where the files and the log of runs are. */
export interface LaunchPlace {
  /** The folder that has a folder for each run. */
  readonly runsFolder: string
  /** @internal For tests: opens another disk instead of the runs folder. */
  readonly openDisk?: OpenDisk
  /** `database` keeps the log in `db.events`; all other files stay in the run's folder. `file` by default. */
  readonly log?: 'file' | 'database'
  /** Shows the run in its ledger and its index of runs. */
  readonly db?: LaunchDatabase
}

/** Options of all functions that work on a run. */
export interface LaunchOptions extends LaunchPlace {
  /** The models of `context.llm`: an endpoint, or a factory for clients of your own. */
  readonly llm?: LlmEndpoint | LlmFactory
  /** Watches the run. */
  readonly observer?: LaunchObserver
  /**
   * The telemetry service that the run reports to. It can't fail a run. By default `TELEMETRY_API_URL` with
   * `TELEMETRY_API_AUTH_TOKEN`; `false` turns telemetry off.
   */
  readonly telemetry?: TelemetryOptions | false
  /** Cancels the run when it aborts. */
  readonly signal?: AbortSignal
  /** The tenant of the run in the ledger; `default` by default. */
  readonly tenant?: string
  /** The project of the run in the ledger; `default` by default. */
  readonly project?: string
  /** The environment of the run in the ledger and in telemetry; `default` by default. */
  readonly environment?: string
  /** The time in milliseconds since 1970; `Date.now` by default. */
  readonly clock?: () => number
  /** The source of ids; `crypto.randomBytes` by default. */
  readonly random?: Random
  /** Gets warnings about problems that do not fail the run; by default they are warnings of the process. */
  readonly warn?: (message: string) => void
}

/** Options of `startLaunch`. */
export interface StartOptions extends LaunchOptions {
  /** The id of the run, which also names its folder; a new id by default. */
  readonly runId?: string
  /** The configuration of the run. Nodes, workers and gates get it. */
  readonly config?: { readonly [name: string]: unknown }
}

/** Options of `resumeLaunch`. */
export interface ResumeOptions extends LaunchOptions {
  /** Restarts the run from its first state, even if it has ended. The log continues. */
  readonly force?: boolean
}

/** Options of `replayLaunch`. */
export interface ReplayOptions extends LaunchPlace {
  /** The state model of the launch; `RUN_STATES` by default. */
  readonly states?: StateModel
  /** How many events to replay; all by default. */
  readonly atEvent?: number
}

/** Options of `cancelLaunch`. */
export interface CancelOptions extends LaunchOptions {
  /** The state model of the launch; `RUN_STATES` by default. */
  readonly states?: StateModel
  /** The reason that the log records; `cancelled` by default. */
  readonly reason?: string
}

/** Options of `pauseLaunch` and `unpauseLaunch`. */
export interface PauseOptions {
  /** The folder that has a folder for each run. */
  readonly runsFolder: string
  /** The reason that the log records. */
  readonly reason?: string
}

const PLACE = ['runsFolder', 'openDisk', 'log', 'db']
const COMMON = [
  ...PLACE,
  ...['llm', 'observer', 'signal', 'tenant', 'project', 'environment'],
  ...['clock', 'random', 'warn', 'telemetry'],
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
    throw invalidArgument('log', "must be 'file' or 'database'", log)
  }
  if (log === 'database' && db === undefined) {
    throw invalidArgument('db', "is missing: log: 'database' needs it")
  }
  const { signal, llm, clock, warn } = options as LaunchOptions
  checkSignal(signal)
  for (const [name, value] of Object.entries({ clock, warn })) {
    if (value !== undefined) checkFunction(name, value)
  }
  if (llm !== undefined && typeof llm !== 'function') checkLlmEndpoint(llm)
  checkTelemetry((options as LaunchOptions).telemetry)
}
