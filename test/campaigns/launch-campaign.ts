import { AnnalsError } from '../../src/core/errors.ts'
import { readFile } from '../../src/disk/durable-file.ts'
import type { Launch } from '../../src/launch/definition.ts'
import { type FlushTelemetryOptions, flushTelemetry } from '../../src/launch/flush-telemetry.ts'
import { replayLaunch, resumeLaunch, startLaunch } from '../../src/launch/launches.ts'
import type { LaunchOptions } from '../../src/launch/options.ts'
import { Random } from '../../src/testing/random.ts'
import type { DiskCall } from '../simulation/disk-faults.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { unevenly } from './crash-shapes.ts'
import { check } from './crash-workload.ts'
import {
  checkEnd,
  checkImage,
  checkTampering,
  checkTrail,
  misplaced,
  type Recovered,
} from './launch-checks.ts'
import {
  ENDING_LAUNCH,
  LARGE_LAUNCH,
  type LaunchShape,
  LaunchWorld,
  RUN_ID,
  randomBytesOf,
  SMALL_LAUNCH,
  STATES,
  TINY_LAUNCH,
} from './launch-world.ts'

/**
 * Runs launches on a simulated disk. At every disk call that changes something, the process is killed or the power is
 * cut. Each image is checked and resumed to the end of the run. Some images crash again while they are resumed, up to
 * three generations deep.
 */
export interface LaunchReport {
  readonly seed: number
  launches: number
  images: number
  processCrashes: number
  powerCuts: number
  /** The number of images of processes that were resuming a run. */
  laterGenerations: number
  /** The number of moments at which every possible image of a power cut was checked. */
  exhausted: number
  resumed: number
  startedAgain: number
  ended: number
  forced: number
  tornLines: number
  replayed: number
  /** The number of disk calls that changed something, by kind and file. */
  readonly calls: Record<string, number>
}

export interface LaunchCampaign {
  readonly seed: number
  /** The campaign ends when this many images were checked. */
  readonly images: number
  readonly progress?: (report: LaunchReport) => void
}

interface Image {
  readonly disk: SimulatedDisk
  readonly kind: 'process crash' | 'power cut'
  readonly moment: string
  readonly world: LaunchWorld
}

/** The state that all generations of one launch share. */
interface Line {
  readonly shape: LaunchShape
  readonly hasTelemetry: boolean
  readonly random: Random
  readonly report: LaunchReport
  /** The content of the images that were checked, so that none is checked twice. */
  readonly seen: Set<string>
  readonly isOver: () => boolean
}

const RUNS_FOLDER = '/simulated/runs'
const EXHAUSTIVE_IMAGES_MAX = 64
/** The chance that the process that resumes an image crashes again, by generation. */
const LIVE_ON: readonly number[] = [0.05, 0.05, 0]
/** The share of moments at which a process crashes: the first process, and the processes that resume. */
const MOMENTS: ReadonlyMap<LaunchShape, readonly [first: number, later: number]> = new Map([
  [TINY_LAUNCH, [1, 0.1]],
  [ENDING_LAUNCH, [1, 1]],
  [SMALL_LAUNCH, [0.1, 0.03]],
  [LARGE_LAUNCH, [0.03, 0.01]],
])
const READING: readonly DiskCall['kind'][] = ['read', 'size', 'list', 'open', 'lock']

const NOTHING: Recovered = { kind: 'new', torn: Buffer.alloc(0) }

export function newLaunchReport(seed: number): LaunchReport {
  return {
    ...{ seed, launches: 0, images: 0, processCrashes: 0, powerCuts: 0, laterGenerations: 0, exhausted: 0 },
    ...{ resumed: 0, startedAgain: 0, ended: 0, forced: 0, tornLines: 0, replayed: 0, calls: {} },
  }
}

export async function launchCampaign(campaign: LaunchCampaign): Promise<LaunchReport> {
  const random = new Random(campaign.seed)
  const report = newLaunchReport(campaign.seed)
  while (report.images < campaign.images) {
    const isOver = (): boolean => report.images >= campaign.images
    await crashLaunch(random.below(0x1_0000_0000), report, undefined, isOver)
    campaign.progress?.(report)
  }
  return report
}

/** Runs one launch and all its generations. The seed determines everything. */
export async function crashLaunch(
  seed: number,
  report: LaunchReport = newLaunchReport(seed),
  shape?: LaunchShape,
  /** Asked before each image. Returns true when the time is up. */
  isOver: () => boolean = () => false,
): Promise<LaunchReport> {
  const random = new Random(seed)
  const chosen = shape ?? random.pick([TINY_LAUNCH, SMALL_LAUNCH, SMALL_LAUNCH, LARGE_LAUNCH])
  report.launches++
  try {
    const line = {
      shape: chosen,
      hasTelemetry: random.chance(0.5) || chosen === ENDING_LAUNCH,
      random,
      report,
      seen: new Set<string>(),
      isOver,
    }
    const disk = new SimulatedDisk({ seed, later: unevenly(random.fork()) })
    disk.makeFolder('runs')
    disk.syncFolder()
    await generation(disk, new LaunchWorld(), line, 1, MOMENTS.get(chosen)?.[0] ?? 1, NOTHING)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`launch with seed ${seed} (${chosen.name}): ${why}`, { cause: error })
  }
  return report
}

/** Works on the run until it has ended, takes images at a share of the moments, and checks each image. */
async function generation(
  disk: SimulatedDisk,
  world: LaunchWorld,
  line: Line,
  depth: number,
  share: number,
  found: Recovered,
): Promise<void> {
  const { random, report, shape } = line
  const images: Image[] = []
  const take = (moment: string): void => {
    const known = world.copy()
    images.push({ disk: disk.afterProcessCrash(random.fork()), kind: 'process crash', moment, world: known })
    const isSmall = shape === TINY_LAUNCH || shape === ENDING_LAUNCH
    const all = isSmall && depth === 1 && 2 ** disk.undecided <= EXHAUSTIVE_IMAGES_MAX
    if (all) report.exhausted++
    const cuts = disk.powerCuts(random.fork(), all ? EXHAUSTIVE_IMAGES_MAX : 2)
    for (const cut of cuts) images.push({ disk: cut, kind: 'power cut', moment, world: known.copy() })
  }
  if (share > 0) {
    disk.onCall = ({ index, kind, file, phase }) => {
      // Reads change nothing, so a crash there leaves the same image as a crash before.
      if (READING.includes(kind)) return
      if (phase === 'end') countCall(report, kind, file)
      if (shape === ENDING_LAUNCH && !world.isEnding) return
      if (random.chance(share)) take(`${phase} of call ${index}, ${kind} ${file}`)
    }
  }
  const isForced = depth === 1 && random.chance(0.3)
  if (found.kind === 'found' && random.chance(share > 0 ? 0.5 : 0.1)) await replay(disk, report)
  await workToTheEnd(disk, world, line, found, depth === 1)
  if (isForced) {
    report.forced++
    await workToTheEnd(disk, world, line, { kind: 'forced' }, false)
  }
  disk.onCall = undefined
  if (depth === 1) checkTampering(disk, random)
  // Nothing is written to a run that had ended, but telemetry was told of its end, so its last line must be durable by now.
  const wasTold = line.hasTelemetry && found.kind === 'found' && found.hasEnded && disk.undecided > 0
  if (share > 0 || (wasTold && depth <= LIVE_ON.length)) take('the end')
  for (const image of images) {
    if (line.isOver()) return
    await judge(image, line, depth)
  }
}

async function judge(image: Image, line: Line, depth: number): Promise<void> {
  const { report, random, seen, shape } = line
  const key = keyOf(image)
  if (seen.has(key)) return
  seen.add(key)
  report.images++
  if (image.kind === 'process crash') report.processCrashes++
  else report.powerCuts++
  if (depth > 1) report.laterGenerations++
  try {
    const { disk, world } = image
    const recovered = checkImage(disk, world)
    if (recovered.torn.length > 0) report.tornLines++
    // The part of a line that a power cut has left is durable. That of a killed process may still be lost.
    world.torn = image.kind === 'power cut' ? recovered.torn : Buffer.alloc(0)
    const livesOn = random.chance(LIVE_ON[depth - 1] ?? 0)
    const share = livesOn ? (MOMENTS.get(shape)?.[1] ?? 0) : 0
    await generation(disk, world, line, depth + 1, share, recovered)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`${image.kind} at the ${image.moment}: ${why}`, { cause: error })
  }
}

/** Identifies images with the same files and the same promises. */
function keyOf({ disk, kind, world }: Image): string {
  const files = Object.entries(disk.toFiles()).map(([name, bytes]) => `${name} ${bytes.toString('latin1')}`)
  const { lines, snapshotEvents, executed, answered, service } = world
  const promised = [lines.length, snapshotEvents, executed.length, answered.length, service.statusOf(RUN_ID)]
  return [kind === 'process crash' ? disk.undecided : '', ...promised, ...files].join('\n')
}

/** N7: a run that no process works on can be replayed, which writes its snapshot. */
async function replay(disk: SimulatedDisk, report: LaunchReport): Promise<void> {
  report.replayed++
  const options = { runsFolder: RUNS_FOLDER, openDisk: () => disk.folder('runs'), states: STATES }
  const { text } = await replayLaunch(RUN_ID, options)
  const written = readFile(disk, `runs/${RUN_ID}/snapshot.json`)
  check(written?.toString('utf8') === text, 'N7: a replay has not written its snapshot')
}

async function workToTheEnd(
  disk: SimulatedDisk,
  world: LaunchWorld,
  line: Line,
  found: Recovered | { readonly kind: 'forced' },
  isServiceShaky: boolean,
): Promise<void> {
  const { shape, report } = line
  const random = line.random.fork()
  const lines = found.kind === 'found' ? found.lines : found.kind === 'forced' ? world.lines : []
  const options = {
    ...optionsOf(disk, world, random, lines),
    ...(line.hasTelemetry ? {} : { telemetry: false as const }),
  }
  if (isServiceShaky) {
    const [from, to] = [random.below(40), random.below(60)]
    world.service.isDown = n => n >= from && n < to
  }
  const executedBefore = world.executed.length
  const askedBefore = world.asked.length
  const answered = world.answered
  const launch = world.launch(shape)
  if (found.kind === 'new') {
    if (world.lines.length === 0 && executedBefore === 0) report.startedAgain++
    const run = await startLaunch(launch, { ...options, runId: RUN_ID })
    await run.result
  } else if (found.kind === 'found' && found.hasEnded) {
    report.ended++
    // Telemetry learns of the end of the run, whether or not there is an attempt to resume it.
    if (random.chance(0.5)) await checkRefused(launch, options)
  } else {
    report.resumed++
    const run = await resumeLaunch(launch, RUN_ID, { ...options, force: found.kind === 'forced' })
    // No worker has run yet, so none can have written an artifact again.
    const missing = misplaced(disk, found)
    check(missing.length === 0, `N8: a run goes on without its artifacts ${missing.join(', ')}`)
    for (const cut of disk.powerCuts(random.fork(), 2))
      check(misplaced(cut, found).length === 0, 'N8: a run goes on with artifacts that a power cut removes')
    const { status, error } = await run.result
    check(status === 'completed', `the resumed run is ${status}: ${error?.message}`)
  }
  world.service.isDown = () => false
  if (line.hasTelemetry) {
    const { runsFolder, openDisk, telemetry } = options
    await flushTelemetry({ runsFolder, openDisk, telemetry, warn: () => undefined } as FlushTelemetryOptions)
    checkTrail(disk, world)
  }
  checkEnd(disk, world, shape, {
    executed: world.executed.slice(executedBefore),
    asked: world.asked.slice(askedBefore),
    answered,
    found,
  })
}

async function checkRefused(launch: Launch, options: LaunchOptions): Promise<void> {
  const refused = await resumeLaunch(launch, RUN_ID, options).then(
    () => undefined,
    (error: unknown) => error,
  )
  check(
    refused instanceof AnnalsError && refused.code === 'ILLEGAL_STATE',
    `a run that has ended was resumed: ${String(refused)}`,
  )
}

function optionsOf(
  disk: SimulatedDisk,
  world: LaunchWorld,
  random: Random,
  lines: readonly string[],
): LaunchOptions {
  return {
    runsFolder: RUNS_FOLDER,
    openDisk: () => disk.folder('runs'),
    clock: world.clock(random.fork()),
    random: randomBytesOf(random.fork()),
    observer: world.observer(lines),
    warn: () => undefined,
    llm: { baseUrl: 'http://model/v1', fetch: world.model },
    telemetry: { url: 'http://telemetry', fetch: world.service.fetch, sleep: async () => undefined },
  }
}

function countCall({ calls }: LaunchReport, kind: DiskCall['kind'], file: string): void {
  const about = file.split('/').slice(2).join('/') || 'run'
  const name = `${kind} ${about.replace(/^(artifacts|evidence|output)\/.*$/, '$1').replace(/\.tmp$/, '')}`
  calls[name] = (calls[name] ?? 0) + 1
}
