import { invalidArgument } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import type { Disk } from '../disk/disk.ts'
import type { FlushReport, TelemetryClientOptions } from '../telemetry/client.ts'
import { openLaunchTelemetry } from '../telemetry/launch-telemetry.ts'
import { ToldFile } from '../telemetry/told.ts'
import type { LaunchEvent, LaunchPayloads } from './events.ts'
import { TelemetryFeed, type ToldLaunch } from './telemetry-feed.ts'

/** A telemetry service that launches report to. */
export interface TelemetryOptions {
  /** The address of the service, such as `http://127.0.0.1:8765`. */
  readonly url: string
  /** The bearer token of the service. */
  readonly token?: string
  /** Sends requests; `globalThis.fetch` by default. */
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>
  /** How long one try may take; 10,000 by default. */
  readonly timeoutMs?: number
  /** Waits between tries; a timer by default. */
  readonly sleep?: (ms: number) => Promise<void>
  /** How long a run that has ended waits for the service; 60,000 by default. Unsent records stay in the outbox. */
  readonly settleMs?: number
}

const OPTIONS = ['url', 'token', 'fetch', 'timeoutMs', 'sleep', 'settleMs']
/** Long enough for three tries of one record with the longest pauses between them. */
const SETTLE_MS = 60_000

export function settleMsOf(given: TelemetryOptions | false | undefined): number {
  return given === false ? SETTLE_MS : (given?.settleMs ?? SETTLE_MS)
}

export function checkTelemetry(given: unknown): void {
  if (given === undefined || given === false) return
  checkOptions('telemetry', given, OPTIONS)
  const { url, token, fetch, sleep, settleMs } = given as Partial<TelemetryOptions>
  if (typeof url !== 'string') throw invalidArgument('url', 'of telemetry must be a string')
  if (token !== undefined && typeof token !== 'string')
    throw invalidArgument('token', 'of telemetry must be a string')
  for (const [name, value] of Object.entries({ fetch, sleep })) {
    if (value !== undefined) checkFunction(name, value)
  }
  if (settleMs !== undefined && !(Number.isSafeInteger(settleMs) && settleMs >= 1)) {
    throw invalidArgument('settleMs', 'of telemetry must be a positive integer', settleMs)
  }
}

let hasWarnedOfNone = false

/** The service of the option, or of the environment. Without any there is no telemetry, and one warning per process. */
export function serviceOf(
  given: TelemetryOptions | false | undefined,
  warn: (message: string) => void,
): TelemetryOptions | undefined {
  if (given !== undefined) return given === false ? undefined : given
  const { TELEMETRY_API_URL: url, TELEMETRY_API_AUTH_TOKEN: token } = process.env
  if (url !== undefined && url !== '') return token === undefined || token === '' ? { url } : { url, token }
  if (!hasWarnedOfNone) {
    hasWarnedOfNone = true
    warn('no telemetry is sent: set TELEMETRY_API_URL to the address of a service, or pass telemetry: false')
  }
  return undefined
}

/** The options of a client of the service. */
export function clientOf(
  { url, settleMs: _, ...rest }: TelemetryOptions,
  warn: (message: string) => void,
): Omit<TelemetryClientOptions, 'disk'> {
  return { ...rest, baseUrl: url, log: { warn, error: warn } }
}

/** The run whose telemetry is sent. */
export interface ToldRun {
  readonly launch: ToldLaunch
  readonly disk: Disk
  readonly log: 'file' | 'database' | undefined
  readonly clock: () => number
  readonly warn: (message: string) => void
  readonly environment: string | undefined
  /** Ends the sending. Unsent records stay in the outbox. */
  readonly signal?: AbortSignal | undefined
}

/** Opens the telemetry of a run; undefined if there is no service. */
export function openFeed(
  given: TelemetryOptions | false | undefined,
  { launch, disk, log = 'file', clock, warn, environment, signal }: ToldRun,
): TelemetryFeed | undefined {
  const service = serviceOf(given, warn)
  if (service === undefined) return undefined
  const nodes = Object.fromEntries([...launch.nodes].map(([state, { name }]) => [state, name]))
  const place = environment === undefined ? {} : { environment }
  const client = { ...clientOf(service, warn), disk, clock, ...(signal === undefined ? {} : { signal }) }
  const open = ({ run_id: runId, trace_id: traceId, span_id: spanId, payload }: LaunchEvent) => {
    const { launch: name, launch_version: launchVersion } = payload as LaunchPayloads['RUN_CREATED']
    return openLaunchTelemetry({ ...client, ...place, runId, traceId, spanId, launch: name, launchVersion })
  }
  const told = new ToldFile(disk, { log, states: launch.states, nodes, ...place }, warn)
  return new TelemetryFeed(launch, open, told, warn)
}

/** Sends the telemetry of a run that no process works on: its process may have died before it sent everything. */
export async function tellLog(
  given: TelemetryOptions | false | undefined,
  run: ToldRun,
  events: readonly LaunchEvent[],
): Promise<FlushReport | undefined> {
  const { signal = AbortSignal.timeout(settleMsOf(given)) } = run
  const feed = openFeed(given, { ...run, signal })
  for (const event of events) feed?.push(event, event !== events.at(-1))
  return feed?.settle()
}
