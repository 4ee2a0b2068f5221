import { AnnalsError } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import type { Disk } from '../disk/disk.ts'
import type { FlushReport, TelemetryClientOptions } from '../telemetry/client.ts'
import { openLaunchTelemetry } from '../telemetry/launch-trail.ts'
import type { TelemetryLog } from '../telemetry/outbox.ts'
import { flushRunsFolder, type LockedFolder, type RunFlush } from '../telemetry/runs-folder.ts'
import { readTold, TOLD_FILE, ToldFile } from '../telemetry/told.ts'
import { verifyLog } from './chain.ts'
import type { LaunchEvent } from './events.ts'
import type { LaunchDatabase } from './options.ts'
import { isLocked, readLog, syncLog } from './run-files.ts'
import { type OpenDisk, openExistingRuns, runFolder } from './run-folder.ts'
import { checkStates, type StateModel } from './states.ts'
import { TelemetryFeed, type ToldLaunch } from './telemetry-feed.ts'

/** A service that launches tell what they do. */
export interface TelemetryOptions
  extends Pick<TelemetryClientOptions, 'token' | 'fetch' | 'timeoutMs' | 'sleep'> {
  /** Such as `http://127.0.0.1:8765`. */
  readonly url: string
  /** How long a run that has ended waits for the service at most; what is left then waits in the outbox. 60 s without it. */
  readonly settleMs?: number
}

const OPTIONS = ['url', 'token', 'fetch', 'timeoutMs', 'sleep', 'settleMs']
/** Three tries of one record, and the longest pauses between them, fit in. */
const SETTLE_MS = 60_000

export function settleMsOf(given: TelemetryOptions | false | undefined): number {
  return given === false || given === undefined ? SETTLE_MS : (given.settleMs ?? SETTLE_MS)
}

export function checkTelemetry(given: unknown): void {
  if (given === undefined || given === false) return
  checkOptions('telemetry', given, OPTIONS)
  const { url, token, fetch, sleep } = given as Partial<TelemetryOptions>
  for (const [name, value] of Object.entries({ url, token })) {
    if (typeof value === 'string' || (name === 'token' && value === undefined)) continue
    throw new AnnalsError('INVALID_ARGUMENT', `${name} of telemetry must be a text`, { name })
  }
  for (const [name, value] of Object.entries({ fetch, sleep })) {
    if (value !== undefined) checkFunction(name, value)
  }
  const { settleMs } = given as Partial<TelemetryOptions>
  if (settleMs !== undefined && !(Number.isSafeInteger(settleMs) && settleMs >= 1)) {
    const message = 'settleMs of telemetry must be a whole number, 1 or more'
    throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'settleMs', value: settleMs })
  }
}

let hasSaidThatNothingIsSent = false

/** Without the option, what the environment says; undefined if there is none, which is said once in a process. */
function serviceOf(
  given: TelemetryOptions | false | undefined,
  warn: (message: string) => void,
): TelemetryOptions | undefined {
  if (given !== undefined) return given === false ? undefined : given
  const { TELEMETRY_API_URL: url, TELEMETRY_API_AUTH_TOKEN: token } = process.env
  if (url !== undefined && url !== '') return token === undefined || token === '' ? { url } : { url, token }
  if (!hasSaidThatNothingIsSent) {
    hasSaidThatNothingIsSent = true
    warn('no telemetry is sent: set TELEMETRY_API_URL to the address of a service, or pass telemetry: false')
  }
  return undefined
}

interface Told {
  readonly launch: ToldLaunch
  readonly disk: Disk
  readonly log: 'file' | 'database' | undefined
  readonly clock: () => number
  readonly warn: (message: string) => void
  readonly environment: string | undefined
  readonly signal: AbortSignal
}

export function openFeed(
  given: TelemetryOptions | false | undefined,
  { launch, disk, log = 'file', clock, warn, environment, signal }: Told,
): TelemetryFeed | undefined {
  const service = serviceOf(given, warn)
  if (service === undefined) return undefined
  const { states } = launch
  const nodes = Object.fromEntries([...launch.nodes].map(([state, { name }]) => [state, name]))
  const place = environment === undefined ? {} : { environment }
  return new TelemetryFeed(
    launch,
    ({ run_id: runId, trace_id: traceId, span_id: spanId, payload }) => {
      const { launch: name, launch_version } = payload as { launch: string; launch_version: string }
      return openLaunchTelemetry({
        ...clientOf(service, warn),
        signal,
        disk,
        clock,
        runId,
        launch: name,
        launchVersion: launch_version,
        traceId,
        spanId,
        ...place,
      })
    },
    new ToldFile(disk, { log, states, nodes, ...place }, warn),
    warn,
  )
}

/** Tells the log of a run that nobody works on: the process that did may have died before the service heard of it. */
export async function tellLog(
  given: TelemetryOptions | false | undefined,
  told: Omit<Told, 'signal'> & { readonly signal?: AbortSignal | undefined },
  events: readonly LaunchEvent[],
): Promise<FlushReport | undefined> {
  const { signal = AbortSignal.timeout(settleMsOf(given)) } = told
  const feed = openFeed(given, { ...told, signal })
  for (const event of events) feed?.push(event, event !== events.at(-1))
  return feed?.settle()
}

function clientOf(
  { url, settleMs: _, ...rest }: TelemetryOptions,
  warn: (message: string) => void,
): Omit<TelemetryClientOptions, 'disk'> & { readonly log: TelemetryLog } {
  return { ...rest, baseUrl: url, log: { warn, error: warn } }
}

export interface FlushTelemetryOptions {
  readonly runsFolder: string
  /** @internal For tests: opens another disk in place of the runs' folder. */
  readonly openDisk?: OpenDisk
  /** Where runs are whose log is in a database. */
  readonly db?: LaunchDatabase
  /** Without it, as `TELEMETRY_API_URL` and `TELEMETRY_API_AUTH_TOKEN` say. */
  readonly telemetry?: TelemetryOptions | false
  readonly warn?: (message: string) => void
  /** Aborting it leaves the rest for the next time. */
  readonly signal?: AbortSignal
}

/** The folders of runs whose outbox this process is flushing: whoever wants the run waits for it. */
const flushing = new Map<string, Promise<void>>()

/** Resolves when this process no longer holds the lock of a run only to flush its outbox; false if it did not hold it. */
export async function flushedBefore(folder: string): Promise<boolean> {
  const flush = flushing.get(folder)
  await flush
  return flush !== undefined
}

/**
 * Sends what runs have left behind: records that wait because the service was away, and events that a process did not live to
 * tell. Runs that are being worked on flush their own.
 */
export async function flushTelemetry(options: FlushTelemetryOptions): Promise<RunFlush[]> {
  const { telemetry, signal } = options
  const { warn = (message: string) => process.emitWarning(message) } = options
  const service = serviceOf(telemetry, warn)
  if (service === undefined) return []
  const runs = openExistingRuns(options, {})
  if (runs === undefined) return []
  try {
    const client = { ...clientOf(service, warn), ...(signal === undefined ? {} : { signal }) }
    const lock = (runId: string): Promise<LockedFolder | undefined> =>
      lockToFlush(runs, runId, runFolder(options, runId))
    const tellRest = async (runId: string, disk: Disk): Promise<FlushReport | undefined> => {
      try {
        return await tellUntold(runId, disk, service, { ...options, warn })
      } catch (error) {
        warn(`the telemetry of run ${runId} can't be completed: ${String(error)}`)
        return undefined
      }
    }
    return await flushRunsFolder({ ...client, runs, lock, tellRest })
  } finally {
    runs.close()
  }
}

/** Undefined if the service was told all that the log has. */
async function tellUntold(
  runId: string,
  disk: Disk,
  service: TelemetryOptions,
  { runsFolder, db, signal, warn }: FlushTelemetryOptions & { readonly warn: (message: string) => void },
): Promise<FlushReport | undefined> {
  const told = readTold(disk)
  if (told === undefined) return undefined
  if (typeof told === 'string') throw new AnnalsError('CORRUPT', `${TOLD_FILE} is damaged: ${told}`)
  const { log, nodes, environment } = told
  if (log === 'database' && db === undefined)
    throw new AnnalsError('INVALID_ARGUMENT', 'its log is in a database: pass that as db')
  const states = told.states as StateModel
  checkStates(states)
  const place = { runsFolder, log, ...(db === undefined ? {} : { db }) }
  // What the service hears of must outlive a power cut.
  await syncLog(disk, place)
  const { events } = verifyLog(await readLog(disk, runId, place), runId)
  if (events.length <= told.events) return undefined
  const names = new Map(Object.entries(nodes).map(([state, name]) => [state, { name }]))
  const launch = { states, nodes: names }
  return tellLog(service, { launch, disk, log, clock: Date.now, warn, environment, signal }, events)
}

/** Undefined if the run is at work, or being flushed already. */
async function lockToFlush(runs: Disk, runId: string, folder: string): Promise<LockedFolder | undefined> {
  if (flushing.has(folder)) return undefined
  const disk = runs.folder(runId)
  let done: () => void = () => undefined
  // Before the lock is taken, so that nobody finds the run locked without knowing why.
  flushing.set(
    folder,
    new Promise(resolve => {
      done = resolve
    }),
  )
  const release = (): void => {
    disk.close()
    flushing.delete(folder)
    done()
  }
  try {
    await disk.lock()
    return { disk, release }
  } catch (error) {
    release()
    if (isLocked(error)) return undefined
    throw error
  }
}
