import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { checkFlag } from '../core/options.ts'
import type { Disk } from '../disk/disk.ts'
import { makeFolder } from '../disk/durable-file.ts'
import type { Launch } from './definition.ts'
import { DOCS_STATES } from './docs/pipeline.ts'
import type { LaunchSnapshot } from './events.ts'
import { flushedBefore } from './flush-telemetry.ts'
import { activeRun, LaunchRun } from './launch-run.ts'
import type { EventLog } from './log.ts'
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
import { checkRunId, openRun, openRuns, runFolder } from './run-folder.ts'
import { askRun, isUnlocked, type RunRequest } from './run-requests.ts'
import { tellLog } from './run-telemetry.ts'
import { snapshotText, writeSnapshot } from './snapshot.ts'
import { isTerminal, type StateModel } from './states.ts'

/** Starts a run. Resolves once it is created, durably; `RUN_EXISTS` if there is one of that id. */
export async function startLaunch(launch: Launch, options: StartOptions): Promise<LaunchRun> {
  checkLaunchOptions('startLaunch', options)
  const { clock = Date.now, random, config = {} } = options
  checkConfig(config)
  const runId = checkRunId(options.runId ?? newOrderedId(Math.floor(clock()), random))
  const folder = runFolder(options, runId)
  const runs = openRuns(options)
  const isNew = makeRunFolder(runs, runId)
  let disk: Disk | undefined
  let log: EventLog | undefined
  try {
    disk = runs.folder(runId)
    await lockToWork(disk, runId, options)
    await refuseKnown(disk, runId, options)
    log = await openLog(disk, runId, options)
    // Of a process that died before its first line was whole.
    await log.cut(0)
    const run = new LaunchRun(launch, runId, folder, options, log, disk)
    await run.begin(false, async () => {
      const { name, version } = launch
      const created = { run_id: runId, launch: name, launch_version: version, run_config: config }
      await run.journal.append('RUN_CREATED', created)
    })
    return run
  } catch (error) {
    await log?.close()
    disk?.close()
    if (isNew) removeIfEmpty(runs, runId)
    throw error
  } finally {
    runs.close()
  }
}

/**
 * Goes on with a run whose process died, was stopped, or paused it. Finished work is not done again. A run that has ended is
 * `ILLEGAL_STATE`, unless `force` asks for all of it once more.
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
      const message = `run ${JSON.stringify(runId)} is one of launch ${memory.launch}, not ${launch.name}`
      throw new AnnalsError('INVALID_ARGUMENT', message, { runId, launch: memory.launch })
    }
    if (memory.hasEnded && !isForced) {
      const { clock = Date.now, warn = process.emitWarning, environment, telemetry, log } = options
      await tellLog(telemetry, { launch, disk, log, clock, warn, environment }, replayed.events)
      const message = `run ${JSON.stringify(runId)} is ${run_state}: it has ended. With force: true all is done again`
      throw new AnnalsError('ILLEGAL_STATE', message, { runId, state: run_state })
    }
    return run => run.begin(true, () => (isForced ? startOver(run) : goOn(run)))
  })
}

/** Cancels a run, whoever works on it: this process, another one, or nobody. */
export async function cancelLaunch(runId: string, options: CancelOptions): Promise<void> {
  checkLaunchOptions('cancelLaunch', options)
  const { reason = 'cancelled', states = DOCS_STATES } = options
  const folder = runFolder(options, runId)
  for (let isAskedFor = false; ; isAskedFor = true) {
    // Who was asked may have done it, and died before he could say so.
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

/** One that nobody works on. */
async function cancelIdle(runId: string, options: CancelOptions): Promise<void> {
  const { reason = 'cancelled', states = DOCS_STATES, ...common } = options
  await takeOver(bystander(states), runId, common, async ({ replayed }) => {
    const { run_state } = replayed.state
    if (isTerminal(states, run_state)) {
      const message = `run ${JSON.stringify(runId)} is ${run_state}: it has ended already`
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

/** Pauses a run that this process or another one works on; resolves when its running workers have ended. */
export async function pauseLaunch(runId: string, options: PauseOptions): Promise<void> {
  const { reason } = options
  const request = { kind: 'pause', ...(reason === undefined ? {} : { reason }) } as const
  await atWork(runId, options, request, run => run.pause(reason))
}

/** Goes on with a run that is paused, in this process or in another one. */
export async function unpauseLaunch(runId: string, options: PauseOptions): Promise<void> {
  await atWork(runId, options, { kind: 'unpause' }, run => run.unpause())
}

/** Has it done by whoever works on the run. */
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
  throw new AnnalsError('ILLEGAL_STATE', `nobody works on run ${JSON.stringify(runId)}: resume it first`, {
    runId,
  })
}

export interface ReplayedLaunch {
  readonly snapshot: LaunchSnapshot
  /** As it is on disk, byte for byte. */
  readonly text: string
  readonly events: number
  /** Bytes behind the last complete line; they count for nothing. */
  readonly tornBytes: number
  /** Whether `snapshot.json` was written: it was missing or not this one, and nobody was working on the run. */
  readonly written: boolean
}

/**
 * What the log of a run comes to, from the log alone: no worker runs, and a run that is being worked on is not disturbed. A
 * log that was tampered with is `EVENT_CHAIN_BROKEN`, with the line.
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

/** Under the lock, and as of now: between looking and locking somebody may have worked on it. */
async function writeIfIdle(runId: string, options: ReplayOptions, states: StateModel): Promise<boolean> {
  const disk = openRun(runId, options)
  try {
    await lockRun(disk, runId, options)
    // A snapshot of lines that are not on the device would outlive them, and say that the log has lost its end.
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

/** Locks a run, looks at it, and only if all is well opens its log to write. */
async function takeOver(
  launch: Launch,
  runId: string,
  options: LaunchOptions,
  judge: (found: FoundRun, disk: Disk) => Promise<(run: LaunchRun) => Promise<void>>,
): Promise<LaunchRun> {
  const folder = runFolder(options, runId)
  const disk = openRun(runId, options)
  let log: EventLog | undefined
  try {
    await lockToWork(disk, runId, options)
    await syncLog(disk, options)
    const found = await findRun(disk, runId, options, launch.states)
    const work = await judge(found, disk)
    const { events, state, seal, tornBytes } = found.replayed
    log = await openLog(disk, runId, options)
    await log.cut(seal.bytes)
    const run = new LaunchRun(launch, runId, folder, options, log, disk)
    run.journal.adopt(events, state)
    run.bench.artifacts.recover()
    run.recall(events)
    if (tornBytes > 0) options.warn?.(`a torn line of ${tornBytes} bytes was set aside in ${folder}`)
    await work(run)
    return run
  } catch (error) {
    await log?.close()
    disk.close()
    throw error
  }
}

async function refuseKnown(disk: Disk, runId: string, options: LaunchOptions): Promise<void> {
  if (!(await readLog(disk, runId, options)).includes(0x0a)) return
  const message = `there is a run ${JSON.stringify(runId)} already: resume it, or choose another id`
  throw new AnnalsError('RUN_EXISTS', message, { runId })
}

/** Before anything is made of it: it goes into the first line of the log. */
function checkConfig(config: unknown): void {
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw new AnnalsError('INVALID_ARGUMENT', 'config must be an object', { name: 'config' })
  }
  canonicalJson(config)
}

/** Durable once it returns; false if it was there. */
function makeRunFolder(runs: Disk, runId: string): boolean {
  const isNew = makeFolder(runs, runId)
  runs.syncFolder()
  return isNew
}

function removeIfEmpty(runs: Disk, runId: string): void {
  try {
    runs.removeFolder(runId)
  } catch (error) {
    // Something is in it by now, or it is gone: either is fine.
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST' && code !== 'ENOENT') throw error
  }
}

/** For who only ends a run: no worker of it is needed. */
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
