import { openEmbedded } from '../../src/embedded/open.ts'
import { TAGS } from '../../src/engine/keys.ts'
import { Random } from '../../src/testing/random.ts'
import type { DiskCall } from '../simulation/disk-faults.ts'
import { inSeededSlices } from '../simulation/seeded-slices.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { History } from './crash-history.ts'
import { Clock, SHAPES, type Shape, TINY, tinyOptions, unevenly } from './crash-shapes.ts'
import {
  check,
  countIn,
  type Program,
  type ProgramCounts,
  type Progress,
  runProgram,
} from './crash-workload.ts'

/**
 * Runs random programs on a simulated disk and crashes them around every disk call and every acknowledgement, as a
 * process crash or a power cut. Each disk image that a crash leaves is recovered and checked. Another program continues
 * on some images and crashes again, also in the middle of its recovery, up to three generations deep.
 */
export interface CrashCampaign {
  readonly seed: number
  /** The campaign ends after the program with which the number of checked images reaches this. */
  readonly images: number
  readonly progress?: (report: CrashReport) => void
}

export interface CrashReport extends ProgramCounts {
  readonly seed: number
  programs: number
  images: number
  processCrashes: number
  powerCuts: number
  /** The number of images checked after a second and a third crash. */
  secondGeneration: number
  thirdGeneration: number
  /** The number of moments at which every possible image of a power cut was checked. */
  exhausted: number
  tornTails: number
  manifestFallbacks: number
  /** The number of disk calls of each kind: `create wal`, `sync data`, … */
  readonly calls: Record<string, number>
}

interface Image {
  readonly disk: SimulatedDisk
  readonly kind: 'process crash' | 'power cut'
  readonly moment: string
  /** The image must hold at least `promised` and at most `issued` commits. */
  readonly promised: number
  readonly issued: number
  /** The number of commits that survive a power cut. */
  readonly durable: number
  /** The highest time that the clock has shown. */
  readonly time: number
}

/** The state that all generations of one program share. */
export interface Line {
  readonly shape: Shape
  readonly durability: 'durable' | 'relaxed'
  readonly random: Random
  readonly report: CrashReport
}

const GENERATIONS = 3
/** The chance that another program continues on an image. It is higher if the recovery had more to repair. */
const LIVE_ON = {
  usual: 0.004,
  tornTail: 0.01,
  undecided: 0.03,
  manifestFallback: 0.06,
  tinyManifestFallback: 0.1,
} as const
/** If a power cut can leave at most this many images, all of them are checked. */
const EXHAUSTIVE_IMAGES_MAX = 64

export function newReport(seed: number): CrashReport {
  return {
    seed,
    programs: 0,
    images: 0,
    processCrashes: 0,
    powerCuts: 0,
    secondGeneration: 0,
    thirdGeneration: 0,
    exhausted: 0,
    tornTails: 0,
    manifestFallbacks: 0,
    commits: 0,
    drops: 0,
    checkpoints: 0,
    snapshots: 0,
    backups: 0,
    reopenings: 0,
    calls: {},
  }
}

export async function crashCampaign(campaign: CrashCampaign): Promise<CrashReport> {
  const random = new Random(campaign.seed)
  const report = newReport(campaign.seed)
  while (report.images < campaign.images) {
    await crashProgram(random.below(0x1_0000_0000), report)
    campaign.progress?.(report)
  }
  return report
}

/** Runs one program and all its generations. The seed determines everything. */
export async function crashProgram(
  seed: number,
  report: CrashReport = newReport(seed),
  /** The share of moments at which the program crashes. */
  share = 1,
): Promise<CrashReport> {
  report.programs++
  const random = new Random(seed)
  const shape = random.pick(SHAPES)
  const durability = random.chance(0.75) ? 'durable' : 'relaxed'
  const disk = new SimulatedDisk({ seed, later: unevenly(random.fork()) })
  const progress = { acknowledged: 0, durable: 0, issued: 0 }
  try {
    const line = { shape, durability, random, report } as const
    await inSeededSlices(seed, () =>
      generation(disk, new History(shape.trees), progress, new Clock(), 1, line, { share, sound: true }),
    )
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`crash program with seed ${seed} (${shape.name}, ${durability}): ${why}`, {
      cause: error,
    })
  }
  return report
}

/** Runs a program on the disk, takes images as if it had crashed at every moment, and checks each image. */
export async function generation(
  disk: SimulatedDisk,
  history: History,
  progress: Progress,
  clock: Clock,
  depth: number,
  line: Line,
  /**
   * `share` is the share of moments at which the program crashes. `sound` is false if the disk may show data that was
   * never synced.
   */
  { share, sound }: { readonly share: number; readonly sound: boolean },
): Promise<void> {
  const { random, report, shape, durability } = line
  const images: Image[] = []
  const take = (moment: string, cuts: number, crash: boolean): void => {
    const { acknowledged, durable, issued } = progress
    const at = { moment, issued, durable, time: clock.highest }
    if (crash) {
      const left = disk.afterProcessCrash(random.fork())
      images.push({ disk: left, kind: 'process crash', promised: acknowledged, ...at })
    }
    const few = shape === TINY && (depth === 1 || (depth === 2 && moment.includes('manifest')))
    const all = few && 2 ** disk.undecided <= EXHAUSTIVE_IMAGES_MAX
    if (all) report.exhausted++
    for (const left of disk.powerCuts(random.fork(), all ? EXHAUSTIVE_IMAGES_MAX : cuts)) {
      images.push({ disk: left, kind: 'power cut', promised: durable, ...at })
    }
  }
  disk.onCall = call => {
    if (call.phase === 'end') countCall(report, call)
    // Reads change nothing, so a crash there leaves the same image as a crash before.
    if (call.kind === 'read' || call.kind === 'size' || call.kind === 'list' || !random.chance(share)) return
    // Nothing is written between the end of a call and the start of the next, so process crashes are taken only at the start.
    take(
      `${call.phase} of call ${call.index}, ${call.kind} ${call.file}`,
      depth === 1 ? 2 : 1,
      call.phase === 'start',
    )
  }
  const program: Program = {
    shape,
    durability,
    random: random.fork(),
    steps: depth === 1 ? Math.ceil(shape.steps * (0.5 + random.next())) : 2 + random.below(6),
    clock,
    progress,
    close: random.chance(0.5),
    sound,
    learned: () => {
      if (random.chance(share)) take(`moment when ${progress.acknowledged} commits were known`, 1, true)
    },
  }
  const counts = await runProgram(disk, history, program)
  disk.onCall = undefined
  take('end of the program', 2, true)
  for (const key of Object.keys(counts) as (keyof ProgramCounts)[]) report[key] += counts[key]
  for (const image of images) {
    const { count, liveOn } = await judge(image, history, line)
    if (depth === 2) report.secondGeneration++
    if (depth === 3) report.thirdGeneration++
    if (depth === GENERATIONS || !random.chance(liveOn)) continue
    // A recovery promises no more than was promised before it.
    const next = { acknowledged: image.promised, durable: Math.min(image.durable, count), issued: count }
    const again = { share: 0.3, sound: true }
    await generation(image.disk, history.upTo(count), next, new Clock(image.time), depth + 1, line, again)
  }
}

function countCall({ calls }: CrashReport, { kind, file }: DiskCall): void {
  const name = file === '' ? kind : `${kind} ${file.slice(0, file.indexOf('-'))}`
  calls[name] = (calls[name] ?? 0) + 1
}

interface Verdict {
  /** The number of commits in the image. */
  readonly count: number
  readonly liveOn: number
}

/** Recovers a copy of the image twice and checks the result. */
async function judge(image: Image, history: History, line: Line): Promise<Verdict> {
  const { report, shape, durability, random } = line
  report.images++
  if (image.kind === 'process crash') report.processCrashes++
  else report.powerCuts++
  try {
    const disk = image.disk.afterProcessCrash()
    if (random.chance(0.06)) await judgeReadOnly(image, history, line)
    const store = await openEmbedded(tinyOptions(disk, shape, durability, () => image.time))
    const { tornTail, damagedManifests = [] } = store.recovery ?? {}
    if (tornTail !== undefined) report.tornTails++
    if (damagedManifests.length > 0) report.manifestFallbacks++
    const count = await countIn(store, history)
    check(count !== undefined, 'there is a commit that was never asked for')
    check(count >= image.promised, `${image.promised} commits were promised, but ${count} are left`)
    check(count <= image.issued, `${count} commits are there, but only ${image.issued} were asked for`)
    const { version } = store.stats()
    const [own, next] = [
      history.versions[count - 1] ?? 0,
      history.versions[count] ?? Number.POSITIVE_INFINITY,
    ]
    check(own <= version && version < next, `version ${version} is not that of ${count} commits`)
    const chain = random.chance(0.06) ? 'hashed' : 'linked'
    const usable = shape.trees.filter(({ tag }) => tag === TAGS.kv)
    const place = { ...random.pick(usable), key: random.pick(shape.keys) }
    const wrong =
      (await history.differenceAt(store, count, image.time, place)) ??
      (await history.difference(store, count, image.time, chain)) ??
      (await history.differenceOfScopes(store, count, image.time))
    check(wrong === undefined, String(wrong))
    await store.verify()
    // A crash right after the recovery must lead to the same result.
    const again = await openEmbedded(
      tinyOptions(disk.afterProcessCrash(), shape, durability, () => image.time),
    )
    check(
      again.stats().version === version && (await countIn(again, history)) === count,
      `recovering twice gives version ${again.stats().version}, not ${version}`,
    )
    check(again.recovery?.tornTail === undefined, 'recovering twice cuts the log twice')
    const manifests = shape === TINY ? LIVE_ON.tinyManifestFallback : LIVE_ON.manifestFallback
    if (damagedManifests.length > 0) return { count, liveOn: manifests }
    if (count > image.promised) return { count, liveOn: LIVE_ON.undecided }
    return { count, liveOn: tornTail === undefined ? LIVE_ON.usual : LIVE_ON.tornTail }
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`${image.kind} at the ${image.moment}: ${why}`, { cause: error })
  }
}

/** A read-only handle sees the same data and changes nothing. */
async function judgeReadOnly(image: Image, history: History, { shape, durability }: Line): Promise<void> {
  const disk = image.disk.afterProcessCrash()
  disk.onCall = ({ kind }) =>
    check(
      kind === 'lock' || kind === 'list' || kind === 'open' || kind === 'read' || kind === 'size',
      `a reader calls ${kind}`,
    )
  const options = tinyOptions(disk, shape, durability, () => image.time)
  const store = await openEmbedded({ ...options, readOnly: true })
  const count = await countIn(store, history)
  check(
    count !== undefined && count >= image.promised,
    `a reader finds ${count} commits, not ${image.promised}`,
  )
  const wrong = await history.difference(store, count, image.time)
  check(wrong === undefined, `to a reader, ${wrong}`)
  await store.close()
}
