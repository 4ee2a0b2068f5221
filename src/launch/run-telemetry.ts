import { AnnalsError } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import type { FolderLock } from '../embedded/lock.ts'
import type { TelemetryClientOptions } from '../telemetry/client.ts'
import { openLaunchTelemetry } from '../telemetry/launch-trail.ts'
import type { TelemetryLog } from '../telemetry/outbox.ts'
import { flushRunsFolder, type RunFlush } from '../telemetry/runs-folder.ts'
import type { Launch } from './definition.ts'
import type { LaunchEvent } from './events.ts'
import { lockRun } from './run-files.ts'
import { TelemetryFeed } from './telemetry-feed.ts'

/** A service that launches tell what they do. */
export interface TelemetryOptions
  extends Pick<TelemetryClientOptions, 'token' | 'fetch' | 'timeoutMs' | 'sleep'> {
  /** Such as `http://127.0.0.1:8765`. */
  readonly url: string
}

const OPTIONS = ['url', 'token', 'fetch', 'timeoutMs', 'sleep']

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
  readonly folder: string
  readonly clock: () => number
  readonly warn: (message: string) => void
  readonly environment: string | undefined
}

export function openFeed(
  given: TelemetryOptions | false | undefined,
  { launch, folder, clock, warn, environment }: Told,
): TelemetryFeed | undefined {
  const service = serviceOf(given)
  if (service === undefined) return undefined
  return new TelemetryFeed(
    launch,
    ({ run_id: runId, trace_id: traceId, span_id: spanId, payload }) => {
      const { launch: name, launch_version } = payload as { launch: string; launch_version: string }
      return openLaunchTelemetry({
        ...clientOf(service, warn),
        folder,
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
  told: Told,
  events: readonly LaunchEvent[],
): Promise<void> {
  const feed = openFeed(given, told)
  for (const event of events) feed?.push(event, event !== events.at(-1))
  await feed?.settle()
}

function clientOf(
  { url, ...rest }: TelemetryOptions,
  warn: (message: string) => void,
): Omit<TelemetryClientOptions, 'folder'> & { readonly log: TelemetryLog } {
  return { ...rest, baseUrl: url, log: { warn, error: warn } }
}

export interface FlushTelemetryOptions {
  readonly runsFolder: string
  /** Without it, as `TELEMETRY_API_URL` and `TELEMETRY_API_AUTH_TOKEN` say. */
  readonly telemetry?: TelemetryOptions | false
  readonly warn?: (message: string) => void
}

/** The folders of runs whose outbox this process is flushing: whoever wants the run waits for it. */
const flushing = new Map<string, Promise<void>>()

/** Resolves when nobody in this process holds the lock of a run only to flush its outbox. */
export async function flushedBefore(folder: string): Promise<void> {
  await flushing.get(folder)
}

/** Sends what runs have left behind while the service was away. Runs that are being worked on flush their own. */
export function flushTelemetry(options: FlushTelemetryOptions): Promise<RunFlush[]> {
  const { runsFolder, telemetry, warn = (message: string) => process.emitWarning(message) } = options
  const service = serviceOf(telemetry)
  if (service === undefined) return Promise.resolve([])
  return flushRunsFolder({ ...clientOf(service, warn), runsFolder, lock: lockToFlush })
}

async function lockToFlush(folder: string): Promise<(() => Promise<void>) | undefined> {
  let lock: FolderLock
  try {
    lock = lockRun(folder, folder)
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'LOCKED') return undefined
    throw error
  }
  let done: () => void = () => undefined
  flushing.set(
    folder,
    new Promise(resolve => {
      done = resolve
    }),
  )
  return async () => {
    lock.release()
    flushing.delete(folder)
    done()
  }
}
