import { AnnalsError } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import type { Disk } from '../disk/disk.ts'
import type { TelemetryClientOptions } from '../telemetry/client.ts'
import { openLaunchTelemetry } from '../telemetry/launch-trail.ts'
import type { TelemetryLog } from '../telemetry/outbox.ts'
import { flushRunsFolder, type LockedFolder, type RunFlush } from '../telemetry/runs-folder.ts'
import type { Launch } from './definition.ts'
import type { LaunchEvent } from './events.ts'
import { isLocked } from './run-files.ts'
import { type OpenDisk, openExistingRuns, runFolder } from './run-folder.ts'
import { TelemetryFeed } from './telemetry-feed.ts'

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

/** Without the option, what the environment says; undefined if nobody wants any. */
function serviceOf(given: TelemetryOptions | false | undefined): TelemetryOptions | undefined {
  if (given !== undefined) return given === false ? undefined : given
  const { TELEMETRY_API_URL: url, TELEMETRY_API_AUTH_TOKEN: token } = process.env
  if (url === undefined || url === '') return undefined
  return token === undefined || token === '' ? { url } : { url, token }
}

interface Told {
  readonly launch: Launch
  readonly disk: Disk
  readonly clock: () => number
  readonly warn: (message: string) => void
  readonly environment: string | undefined
  readonly signal: AbortSignal
}

export function openFeed(
  given: TelemetryOptions | false | undefined,
  { launch, disk, clock, warn, environment, signal }: Told,
): TelemetryFeed | undefined {
  const service = serviceOf(given)
  if (service === undefined) return undefined
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
        ...(environment === undefined ? {} : { environment }),
      })
    },
    warn,
  )
}

/** For a run that has ended: whoever ended it may have died before the service heard of it. */
export async function tellEnded(
  given: TelemetryOptions | false | undefined,
  told: Omit<Told, 'signal'>,
  events: readonly LaunchEvent[],
): Promise<void> {
  const feed = openFeed(given, { ...told, signal: AbortSignal.timeout(settleMsOf(given)) })
  for (const event of events) feed?.push(event, event !== events.at(-1))
  await feed?.settle()
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
  /** Without it, as `TELEMETRY_API_URL` and `TELEMETRY_API_AUTH_TOKEN` say. */
  readonly telemetry?: TelemetryOptions | false
  readonly warn?: (message: string) => void
  /** Aborting it leaves the rest for the next time. */
  readonly signal?: AbortSignal
}

/** The folders of runs whose outbox this process is flushing: whoever wants the run waits for it. */
const flushing = new Map<string, Promise<void>>()

/** Resolves when nobody in this process holds the lock of a run only to flush its outbox. */
export async function flushedBefore(folder: string): Promise<void> {
  await flushing.get(folder)
}

/** Sends what runs have left behind while the service was away. Runs that are being worked on flush their own. */
export async function flushTelemetry(options: FlushTelemetryOptions): Promise<RunFlush[]> {
  const { telemetry, signal } = options
  const { warn = (message: string) => process.emitWarning(message) } = options
  const service = serviceOf(telemetry)
  if (service === undefined) return []
  const runs = openExistingRuns(options, {})
  if (runs === undefined) return []
  try {
    const client = { ...clientOf(service, warn), ...(signal === undefined ? {} : { signal }) }
    const lock = (runId: string): LockedFolder | undefined =>
      lockToFlush(runs, runId, runFolder(options, runId))
    return await flushRunsFolder({ ...client, runs, lock })
  } finally {
    runs.close()
  }
}

function lockToFlush(runs: Disk, runId: string, folder: string): LockedFolder | undefined {
  const disk = runs.folder(runId)
  try {
    disk.lock()
  } catch (error) {
    disk.close()
    if (isLocked(error)) return undefined
    throw error
  }
  let done: () => void = () => undefined
  flushing.set(
    folder,
    new Promise(resolve => {
      done = resolve
    }),
  )
  return {
    disk,
    release: () => {
      disk.close()
      flushing.delete(folder)
      done()
    },
  }
}
