import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { checkFlag } from '../core/options.ts'
import type { Disk } from '../disk/disk.ts'
import { makeFolder } from '../disk/durable-file.ts'
import type { Launch } from './definition.ts'
import { DOCS_STATES } from './docs/pipeline.ts'
import type { LaunchSnapshot } from './events.ts'
import { flushedBefore } from './flush-telemetry.ts'
import { activeRun, LaunchRun } from './launch-run.ts'
import {
  type CancelOptions,
  checkLaunchOptions,
  type LaunchOptions,
  type PauseOptions,
  type ReplayOptions,
  type ResumeOptions,
  type StartOptions,
} from './options.ts'
import { snapshotAt } from './replay.ts'
import { closeInterrupted, goOn, startOver } from './resume.ts'
import {
  type FoundRun,
  findRun,
  isLocked,
  lockRun,
  lookAtRun,
  openLog,
  readLog,
  syncLog,
} from './run-files.ts'
import { openRun, openRuns, runFolder } from './run-folder.ts'
import { askRun, isUnlocked, type RunRequest } from './run-requests.ts'
import { tellLog } from './run-telemetry.ts'
import { snapshotText, writeSnapshot } from './snapshot.ts'
import { isTerminal, type StateModel } from './states.ts'

/** Starts a run. Resolves once its creation is durable. `RUN_EXISTS` if a run has that id already. */
export async function startLaunch(launch: Launch, options: StartOptions): Promise<LaunchRun> {
  checkLaunchOptions('startLaunch', options)
  const { clock = Date.now, random, config = {} } = options
  checkConfig(config)
  const runId = options.runId ?? newOrderedId(Math.floor(clock()), random)
  // Refuses an invalid id or folder before anything is created.
  runFolder(options, runId)
  const runs = openRuns(options)
  const isNew = makeRunFolder(runs, runId)
  let disk: Disk | undefined
  try {
    disk = runs.folder(runId)
    await lockToWork(disk, runId, options)
    await refuseKnown(disk, runId, options)
    const { name, version } = launch
    const created = { run_id: runId, launch: name, launch_version: version, run_config: config }
    // The log has no complete line. A crashed process may have left a part of the first.
    return await workOn(launch, runId, options, disk, 0, run =>
      run.begin(false, async () => {
        await run.journal.append('RUN_CREATED', created)
      }),
    )
  } catch (error) {
    disk?.close()
    if (isNew) removeIfEmpty(runs, runId)
    throw error
  } finally {
    runs.close()
  }
}

/**
 * Continues a run whose process died, stopped or paused it. Finished work is not executed again. Rejects with
 * `ILLEGAL_STATE` for a run that has ended, unless `force` restarts it.
 */
export async function resumeLaunch(
  launch: Launch,
  runId: string,
  options: ResumeOptions,
): Promise<LaunchRun> {
  checkLaunchOptions('resumeLaunch', options)
  checkFlag('force', options.force)
  const isForced = options.force === true
  return takeOver(launch, runId, options, async ({ replayed }, disk) => {
    const { memory, run_state } = replayed.state
    if (memory.launch !== launch.name) {
      const message = `run ${JSON.stringify(runId)} belongs to the launch ${memory.launch}, not ${launch.name}`
      throw new AnnalsError('INVALID_ARGUMENT', message, { runId, launch: memory.launch })
    }
    if (memory.hasEnded && !isForced) {
      const { clock = Date.now, warn = process.emitWarning, environment, telemetry, log } = options
      await tellLog(telemetry, { launch, disk, log, clock, warn, environment }, replayed.events)
      const message = `run ${JSON.stringify(runId)} has ended as ${run_state}. Pass force: true to restart it`
      throw new AnnalsError('ILLEGAL_STATE', message, { runId, state: run_state })
    }
    return run => run.begin(true, () => (isForced ? startOver(run) : goOn(run)))
  })
}

/** Cancels a run, whether this process, another process or no process works on it. */
export async function cancelLaunch(runId: string, options: CancelOptions): Promise<void> {
  checkLaunchOptions('cancelLaunch', options)
  const { reason = 'cancelled', states = DOCS_STATES } = options
  const folder = runFolder(options, runId)
  for (let isAskedFor = false; ; isAskedFor = true) {
    // The process that was asked may have cancelled the run and died before it answered.
    if (isAskedFor) {
      const { replayed } = await lookAtRun(runId, options, states)
      if (replayed.state.run_state === states.cancelled) return
    }
    const working = activeRun(folder)
    if (working !== undefined) {
      await working.cancel(reason)
      return
    }
    try {
      await cancelIdle(runId, options)
      return
    } catch (error) {
      if (!isLocked(error)) throw error
    }
    if (await askRun(runId, options, { kind: 'cancel', reason })) return
  }
}

/** Cancels a run that no process works on. */
async function cancelIdle(runId: string, options: CancelOptions): Promise<void> {
  const { reason = 'cancelled', states = DOCS_STATES, ...common } = options
  await takeOver(bystander(states), runId, common, async ({ replayed }) => {
    const { run_state } = replayed.state
    if (isTerminal(states, run_state)) {
      const message = `run ${JSON.stringify(runId)} has already ended as ${run_state}`
      throw new AnnalsError('ILLEGAL_STATE', message, { runId, state: run_state })
    }
    return async run => {
      await run.begin(true, async () => {
        await closeInterrupted(run, false)
        await run.orchestrator.end(states.cancelled, reason)
      })
      await run.result
    }
  })
}

/** Pauses a run that this or another process works on. Resolves when its running workers have ended. */
export async function pauseLaunch(runId: string, options: PauseOptions): Promise<void> {
  const { reason } = options
  const request = { kind: 'pause', ...(reason === undefined ? {} : { reason }) } as const
  await atWork(runId, options, request, run => run.pause(reason))
}

/** Continues a run that is paused in this or another process. */
export async function unpauseLaunch(runId: string, options: PauseOptions): Promise<void> {
  await atWork(runId, options, { kind: 'unpause' }, run => run.unpause())
}

/** Has the process that works on the run act on it. */
async function atWork(
  runId: string,
  place: PauseOptions,
  request: RunRequest,
  act: (run: LaunchRun) => Promise<void>,
): Promise<void> {
  const run = activeRun(runFolder(place, runId))
  if (run !== undefined) {
    await act(run)
    return
  }
  if (!(await isUnlocked(runId, place)) && (await askRun(runId, place, request))) return
  throw new AnnalsError(
    'ILLEGAL_STATE',
    `no process works on run ${JSON.stringify(runId)}: resume it first`,
    { runId },
  )
}

/** The result of `replayLaunch`. */
export interface ReplayedLaunch {
  /** The state after the last event replayed. */
  readonly snapshot: LaunchSnapshot
  /** The bytes of the snapshot's file. */
  readonly text: string
  /** How many events were replayed. */
  readonly events: number
  /** The bytes after the last complete line. They are ignored. */
  readonly tornBytes: number
  /** Whether `snapshot.json` was written: it was missing or different, and no process worked on the run. */
  readonly written: boolean
}

/**
 * Computes the state of a run from its log alone. No worker runs, and a process that works on the run is not disturbed.
 * Rejects with `EVENT_CHAIN_BROKEN` and the number of the line for a log that was tampered with.
 */
export async function replayLaunch(runId: string, options: ReplayOptions): Promise<ReplayedLaunch> {
  checkLaunchOptions('replayLaunch', options)
  const { states = DOCS_STATES, atEvent } = options
  const { replayed, snapshot: found } = await lookAtRun(runId, options, states, atEvent)
  const snapshot = snapshotAt(replayed)
  const text = snapshotText(snapshot)
  const isThereAlready = found.kind === 'read' && found.text === text
  const written = atEvent === undefined && !isThereAlready && (await writeIfIdle(runId, options, states))
  return { snapshot, text, events: replayed.events.length, tornBytes: replayed.tornBytes, written }
}

/** Writes the snapshot under the run's lock, from the log as it is then. False if a process works on the run. */
async function writeIfIdle(runId: string, options: ReplayOptions, states: StateModel): Promise<boolean> {
  const disk = openRun(runId, options)
  try {
    await lockRun(disk, runId, options)
    // A power cut could take back lines that are not synced. The snapshot would then say that the log lost its end.
    await syncLog(disk, options)
    await writeSnapshot(disk, snapshotAt((await findRun(disk, runId, options, states)).replayed))
    return true
  } catch (error) {
    if (isLocked(error)) return false
    throw error
  } finally {
    disk.close()
  }
}

/** Locks a run to work on it. If this process holds the lock only to send telemetry of the run, waits for that. */
async function lockToWork(disk: Disk, runId: string, options: LaunchOptions): Promise<void> {
  const folder = runFolder(options, runId)
  await flushedBefore(folder)
  for (;;) {
    try {
      return await lockRun(disk, runId, options)
    } catch (error) {
      // The flush may have begun while the lock was being taken.
      if (!isLocked(error) || !(await flushedBefore(folder))) throw error
    }
  }
}

/** Locks a run and replays it. Only if `judge` accepts what was found, the log is opened for writing. */
async function takeOver(
  launch: Launch,
  runId: string,
  options: LaunchOptions,
  judge: (found: FoundRun, disk: Disk) => Promise<(run: LaunchRun) => Promise<void>>,
): Promise<LaunchRun> {
  const folder = runFolder(options, runId)
  const disk = openRun(runId, options)
  try {
    await lockToWork(disk, runId, options)
    await syncLog(disk, options)
    const found = await findRun(disk, runId, options, launch.states)
    const work = await judge(found, disk)
    const { events, state, seal, tornBytes } = found.replayed
    return await workOn(launch, runId, options, disk, seal.bytes, async run => {
      run.journal.adopt(events, state)
      run.bench.artifacts.recover()
      run.recall(events)
      if (tornBytes > 0) options.warn?.(`a torn line of ${tornBytes} bytes was set aside in ${folder}`)
      await work(run)
    })
  } catch (error) {
    disk.close()
    throw error
  }
}

/** Opens the log of a locked run, cuts it to its complete lines, and starts to work on the run. */
async function workOn(
  launch: Launch,
  runId: string,
  options: LaunchOptions,
  disk: Disk,
  bytes: number,
  start: (run: LaunchRun) => Promise<void>,
): Promise<LaunchRun> {
  const log = await openLog(disk, runId, options)
  try {
    await log.cut(bytes)
    const run = new LaunchRun(launch, runId, options, log, disk)
    await start(run)
    return run
  } catch (error) {
    await log.close()
    throw error
  }
}

async function refuseKnown(disk: Disk, runId: string, options: LaunchOptions): Promise<void> {
  if (!(await readLog(disk, runId, options)).includes(0x0a)) return
  const message = `run ${JSON.stringify(runId)} exists already: resume it, or choose another id`
  throw new AnnalsError('RUN_EXISTS', message, { runId })
}

/** Refuses a configuration that the first line of the log can't hold, before anything is created. */
function checkConfig(config: unknown): void {
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw invalidArgument('config', 'must be an object')
  }
  canonicalJson(config)
}

/** Makes the folder of a run durably; false if it existed. */
function makeRunFolder(runs: Disk, runId: string): boolean {
  const isNew = makeFolder(runs, runId)
  runs.syncFolder()
  return isNew
}

function removeIfEmpty(runs: Disk, runId: string): void {
  try {
    runs.removeFolder(runId)
  } catch (error) {
    // Another process has put a file there, or has removed the folder.
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST' && code !== 'ENOENT') throw error
  }
}

/** A launch that can only end runs. Ending needs no workers. */
function bystander(states: StateModel): Launch {
  return {
    name: '-',
    version: '-',
    states,
    nodes: new Map(),
    workers: new Map(),
    gates: new Map(),
    fixer: undefined,
    concurrency: 1,
  }
}
