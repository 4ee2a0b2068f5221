import { openEmbedded } from '../embedded/open.ts'
import { History, type Progress, runProgram, stateOf, tinyOptions } from './crash-workload.ts'
import { Random } from './random.ts'
import { SimulatedDisk } from './simulated-disk.ts'

/**
 * Programs run on a simulated disk; at the start and the end of every disk call
 * the machine dies, in several ways, and each image left behind is recovered and
 * judged. Some images live on: another program runs on them and dies again,
 * also in the middle of its recovery, three generations deep.
 */
export interface CrashCampaign {
  readonly seed: number
  /** Stops after the program in which this many images were judged. */
  readonly images: number
}

export interface CrashReport {
  readonly seed: number
  programs: number
  images: number
  processCrashes: number
  powerCuts: number
  /** How many images were judged after the second and third death. */
  secondGeneration: number
  thirdGeneration: number
  tornTails: number
}

interface Image {
  readonly disk: SimulatedDisk
  readonly kind: 'process crash' | 'power cut'
  readonly call: string
  /** The least and the most that may be left. */
  readonly promised: number
  readonly issued: number
  /** What a power cut would have to leave. */
  readonly durable: number
}

const GENERATIONS = 3

export async function crashCampaign(campaign: CrashCampaign): Promise<CrashReport> {
  const random = new Random(campaign.seed)
  const report: CrashReport = {
    seed: campaign.seed,
    programs: 0,
    images: 0,
    processCrashes: 0,
    powerCuts: 0,
    secondGeneration: 0,
    thirdGeneration: 0,
    tornTails: 0,
  }
  while (report.images < campaign.images) {
    const seed = random.below(0x1_0000_0000)
    try {
      await crashProgram(seed, report)
    } catch (error) {
      throw new Error(`crash program with seed ${seed}: ${error instanceof Error ? error.message : error}`, {
        cause: error,
      })
    }
  }
  return report
}

/** One program and all that comes of it; everything follows from the seed. */
export async function crashProgram(seed: number, report: CrashReport): Promise<void> {
  report.programs++
  const random = new Random(seed)
  const durability = random.chance(0.75) ? 'durable' : 'relaxed'
  const progress = { acknowledged: 0, durable: 0, issued: 0 }
  await generation(new SimulatedDisk({ seed }), new History(), progress, 1, durability, random, report)
}

/** Runs a program on the disk, dying at every call, and judges what is left. */
async function generation(
  disk: SimulatedDisk,
  history: History,
  progress: Progress,
  depth: number,
  durability: 'durable' | 'relaxed',
  random: Random,
  report: CrashReport,
): Promise<void> {
  const images: Image[] = []
  const share = depth === 1 ? 1 : 0.3
  disk.onCall = call => {
    // Reading changes nothing: dying there is like dying before.
    if (call.kind === 'read' || call.kind === 'size' || call.kind === 'list' || !random.chance(share)) return
    const { acknowledged, durable, issued } = progress
    const at = { call: `${call.phase} of call ${call.index}, ${call.kind} ${call.file}`, issued, durable }
    const crash = disk.afterProcessCrash(random.fork())
    images.push({ disk: crash, kind: 'process crash', promised: acknowledged, ...at })
    for (let cut = depth === 1 ? 2 : 1; cut > 0; cut--) {
      images.push({ disk: disk.afterPowerCut(random.fork()), kind: 'power cut', promised: durable, ...at })
    }
  }
  const steps = depth === 1 ? 10 + random.below(30) : 2 + random.below(6)
  await runProgram(disk, history, {
    random: random.fork(),
    durability,
    steps,
    progress,
    close: random.chance(0.5),
  })
  disk.onCall = undefined
  for (const image of images) {
    const version = await judge(image, history, durability, report)
    if (depth === 2) report.secondGeneration++
    if (depth === 3) report.thirdGeneration++
    if (depth === GENERATIONS || !random.chance(0.004)) continue
    // What is promised of the survivor is still what was promised before it was recovered.
    const next = { acknowledged: image.promised, durable: image.durable, issued: version }
    await generation(image.disk, history.upTo(version), next, depth + 1, durability, random, report)
  }
}

/** Recovers a copy of the image, twice, and says which version it holds. */
async function judge(
  image: Image,
  history: History,
  durability: 'durable' | 'relaxed',
  report: CrashReport,
): Promise<number> {
  report.images++
  if (image.kind === 'process crash') report.processCrashes++
  else report.powerCuts++
  const disk = image.disk.afterProcessCrash()
  const store = await openEmbedded(tinyOptions(disk, durability))
  const { version } = store.stats()
  if (store.recovery?.tornTail !== undefined) report.tornTails++
  const where = `${image.kind} at the ${image.call}`
  if (version < image.promised) {
    throw new Error(
      `${where}: commit ${image.promised} was acknowledged, but ${version} is the last one left`,
    )
  }
  if (version > image.issued) throw new Error(`${where}: commit ${version} was never asked for`)
  const state = await stateOf(store)
  if (state !== history.stateAt(version)) {
    throw new Error(`${where}: state at ${version} is\n${state}\nnot\n${history.stateAt(version)}`)
  }
  await store.verify()
  // The process dies again at once: what was recovered must be what is recovered.
  const again = await openEmbedded(tinyOptions(disk.afterProcessCrash(), durability))
  if (again.stats().version !== version) {
    throw new Error(`${where}: recovering twice gives version ${again.stats().version}, not ${version}`)
  }
  return version
}
