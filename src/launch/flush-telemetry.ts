import { AnnalsError, invalidArgument } from '../core/errors.ts'
import type { Disk } from '../disk/disk.ts'
import { type FlushReport, TelemetryClient } from '../telemetry/client.ts'
import { OUTBOX_FILE } from '../telemetry/outbox.ts'
import { readTold, TOLD_FILE } from '../telemetry/told.ts'
import { verifyLog } from './chain.ts'
import type { LaunchDatabase } from './options.ts'
import { isLocked, readLog, syncLog } from './run-files.ts'
import { type OpenDisk, openExistingRuns, runFolder } from './run-folder.ts'
import { clientOf, serviceOf, type TelemetryOptions, tellLog } from './run-telemetry.ts'
import { checkStates, type StateModel } from './states.ts'

/** Options of `flushTelemetry`. */
export interface FlushTelemetryOptions {
  /** The folder that has a folder for each run. */
  readonly runsFolder: string
  /** @internal For tests: opens another disk instead of the runs folder. */
  readonly openDisk?: OpenDisk
  /** The database of runs whose log is in a database. */
  readonly db?: LaunchDatabase
  /** The service; by default `TELEMETRY_API_URL` with `TELEMETRY_API_AUTH_TOKEN`. */
  readonly telemetry?: TelemetryOptions | false
  /** Gets warnings; by default they are warnings of the process. */
  readonly warn?: (message: string) => void
  /** Ends the sending. Unsent records stay where they are. */
  readonly signal?: AbortSignal
}

/** What was sent for one run. */
export interface RunFlush extends FlushReport {
  /** The id of the run. */
  readonly runId: string
}

const NOTHING: FlushReport = { accepted: 0, dead: 0, waiting: 0 }

/** The run folders that this process has locked to flush their outboxes. */
const flushing = new Map<string, Promise<void>>()

/** Resolves when this process does not hold the lock of a run to flush its outbox. False if it did not hold it. */
export async function flushedBefore(folder: string): Promise<boolean> {
  const flush = flushing.get(folder)
  await flush
  return flush !== undefined
}

/**
 * Sends the telemetry that earlier runs left behind: first the records in their outboxes, then the events that their
 * processes did not live to send. Runs that a process works on are left out, because two processes must not write one outbox.
 */
export async function flushTelemetry(options: FlushTelemetryOptions): Promise<RunFlush[]> {
  const { warn = (message: string) => process.emitWarning(message) } = options
  const service = serviceOf(options.telemetry, warn)
  const runs = service === undefined ? undefined : openExistingRuns(options, {})
  if (service === undefined || runs === undefined) return []
  const flushed: RunFlush[] = []
  try {
    for (const runId of runs.folders()) {
      const report = await flushRun(runs, runId, service, { ...options, warn })
      if (report === undefined) continue
      flushed.push({ runId, ...report })
      // The service is down or wants a token. It would refuse the records of the other runs too.
      if (report.waiting > 0) break
    }
    return flushed
  } finally {
    runs.close()
  }
}

type FlushOptions = FlushTelemetryOptions & { readonly warn: (message: string) => void }

/** Undefined if there was nothing to send, or if a process works on the run. */
async function flushRun(
  runs: Disk,
  runId: string,
  service: TelemetryOptions,
  options: FlushOptions,
): Promise<FlushReport | undefined> {
  const files = runs.list(runId)
  const [isWaiting, isIncomplete] = [files.includes(OUTBOX_FILE), files.includes(TOLD_FILE)]
  if (!isWaiting && !isIncomplete) return undefined
  const locked = await lockToFlush(runs, runId, runFolder(options, runId))
  if (locked === undefined) return undefined
  try {
    const sent = isWaiting ? await flushOutbox(runId, locked.disk, service, options) : NOTHING
    const isNext = isIncomplete && sent.waiting === 0
    const rest = isNext ? await tellRest(runId, locked.disk, service, options) : undefined
    if (!isWaiting && rest === undefined) return undefined
    const { accepted, dead, waiting } = rest ?? NOTHING
    return {
      accepted: sent.accepted + accepted,
      dead: sent.dead + dead,
      waiting: sent.waiting + waiting,
    }
  } finally {
    locked.release()
  }
}

async function flushOutbox(
  runId: string,
  disk: Disk,
  service: TelemetryOptions,
  { warn, signal }: FlushOptions,
): Promise<FlushReport> {
  const aborting = signal === undefined ? {} : { signal }
  const client = await TelemetryClient.open({ ...clientOf(service, warn), ...aborting, disk, runId })
  const report = await client.flush()
  await client.close()
  return report
}

/** Sends what the log has and the service was not told; undefined if there is nothing. */
async function tellRest(
  runId: string,
  disk: Disk,
  service: TelemetryOptions,
  { runsFolder, db, signal, warn }: FlushOptions,
): Promise<FlushReport | undefined> {
  try {
    const told = readTold(disk)
    if (told === undefined) return undefined
    if (typeof told === 'string') throw new AnnalsError('CORRUPT', `${TOLD_FILE} is damaged: ${told}`)
    const { log, nodes, environment } = told
    if (log === 'database' && db === undefined)
      throw invalidArgument('db', 'is missing: the log of this run is in a database')
    const states = told.states as StateModel
    checkStates(states)
    const place = { runsFolder, log, ...(db === undefined ? {} : { db }) }
    // The service must not hear of events that a power cut could take back.
    await syncLog(disk, place)
    const { events } = verifyLog(await readLog(disk, runId, place), runId)
    if (events.length <= told.events) return undefined
    const names = new Map(Object.entries(nodes).map(([state, name]) => [state, { name }]))
    const launch = { states, nodes: names }
    const run = { launch, disk, log, clock: Date.now, warn, environment, signal }
    return await tellLog(service, run, events)
  } catch (error) {
    warn(`the telemetry of run ${runId} can't be completed: ${String(error)}`)
    return undefined
  }
}

interface LockedFolder {
  readonly disk: Disk
  release(): void
}

/** Undefined if a process works on the run, or if this process flushes its outbox already. */
async function lockToFlush(runs: Disk, runId: string, folder: string): Promise<LockedFolder | undefined> {
  if (flushing.has(folder)) return undefined
  const disk = runs.folder(runId)
  let done: () => void = () => undefined
  // Set before the lock is taken, so that `flushedBefore` can explain a locked run.
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
