import { Annals } from '../../src/annals.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { Database } from '../../src/engine/database.ts'
import { Random } from '../../src/testing/random.ts'
import { Clock, SMALL, tinyOptions, unevenly } from '../campaigns/crash-shapes.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import {
  checkFinished,
  checkRecovered,
  type Hooks,
  Known,
  type Phase,
  runLedgerProgram,
} from './crash-program.ts'

/**
 * Counts the crashes of a campaign. The program runs on a simulated disk, and an
 * image of the disk is taken around disk writes and between the phases of an
 * append, as a crash would leave it. On each image the program runs again from its
 * beginning, and must give the result of a run without a crash. Some of these
 * runs crash again.
 */
export interface LedgerCrashReport {
  programs: number
  images: number
  processCrashes: number
  powerCuts: number
  /** Crashes of programs that run again after a crash. */
  laterGenerations: number
  /** The number of images taken in each phase of an append, and while the projector was working. */
  readonly phases: Record<Phase | 'projector', number>
}

interface Image {
  readonly disk: SimulatedDisk
  readonly known: Known
  readonly moment: string
  readonly time: number
}

const GENERATIONS = 3
/** The chance that a program that runs again crashes again, and the share of its disk calls at which it does. */
const AGAIN = { chance: 0.02, share: 0.01 }

export function newLedgerCrashReport(): LedgerCrashReport {
  return {
    programs: 0,
    images: 0,
    processCrashes: 0,
    powerCuts: 0,
    laterGenerations: 0,
    phases: {
      'registry write': 0,
      'between registry and append': 0,
      append: 0,
      'between append and answer': 0,
      projector: 0,
    },
  }
}

export async function ledgerCrashProgram(
  seed: number,
  report: LedgerCrashReport,
  /** The share of the disk calls at which the machine crashes. */
  share: number,
  durability: 'durable' | 'relaxed',
  /** Whether invalid transitions are refused at the append (Layer 2). */
  validates: boolean,
): Promise<void> {
  report.programs++
  const random = new Random(seed)
  const disk = new SimulatedDisk({ seed, later: unevenly(random.fork()) })
  try {
    await generation(disk, new Known(validates), new Clock(), { random, durability, report, share, depth: 1 })
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(
      `ledger crash program with seed ${seed} (${durability}${validates ? ', validating' : ''}): ${why}`,
      { cause: error },
    )
  }
}

interface Line {
  readonly random: Random
  readonly durability: 'durable' | 'relaxed'
  readonly report: LedgerCrashReport
  readonly share: number
  readonly depth: number
}

/** Runs the program once, then runs it again on each image that was taken. */
async function generation(disk: SimulatedDisk, known: Known, clock: Clock, line: Line): Promise<void> {
  const { random, durability, report, share, depth } = line
  const images: Image[] = []
  const phases = new Map<string, Phase>()
  let isProjecting = false
  const take = (moment: string, likely: number): void => {
    if (!random.chance(likely)) return
    const at = { known: known.copy(), moment, time: clock.highest }
    // A relaxed store may lose acknowledged events in a power cut, so only process crashes are checked.
    const isCut = durability === 'durable' && random.chance(0.5)
    const left = isCut ? disk.afterPowerCut(random.fork()) : disk.afterProcessCrash(random.fork())
    images.push({ disk: left, ...at })
    report.images++
    if (isCut) report.powerCuts++
    else report.processCrashes++
    if (depth > 1) report.laterGenerations++
    for (const phase of new Set(phases.values())) report.phases[phase]++
    if (isProjecting) report.phases.projector++
  }
  disk.onCall = ({ kind, phase, index, file }) => {
    if (kind === 'read' || kind === 'size' || kind === 'list') return
    take(`${phase} of call ${index}, ${kind} ${file}`, share)
  }
  const hooks: Hooks = {
    phase(phase, runId) {
      clock.pass(random)
      phases.set(runId, phase)
      // Phases are rarer than disk calls, and matter most here.
      take(`${phase} of ${runId}`, 3 * share)
    },
    done: runId => void phases.delete(runId),
    projecting(now) {
      isProjecting = now
    },
  }
  const db = await openOn(disk, durability, () => clock.now, known.validates)
  await checkRecovered(db, known)
  await runLedgerProgram(db, known, () => clock.now, hooks)
  disk.onCall = undefined
  await checkFinished(db, known)
  await db.close()
  for (const image of images) {
    const diesAgain = depth < GENERATIONS && random.chance(AGAIN.chance)
    try {
      // The clock may be set back while the machine is off.
      const time = random.chance(0.2) ? image.time - 5_000 : image.time
      const next = { ...line, depth: depth + 1, share: diesAgain ? AGAIN.share : 0 }
      await generation(image.disk, image.known, new Clock(time), next)
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      throw new Error(`crash ${depth} at the ${image.moment}: ${why}`, { cause: error })
    }
  }
}

async function openOn(
  disk: SimulatedDisk,
  durability: 'durable' | 'relaxed',
  clock: () => number,
  validateTransitions: boolean,
): Promise<Annals> {
  const storage = await openEmbedded(tinyOptions(disk, SMALL, durability, clock))
  const store = { storage, database: new Database(storage), guards: {}, ledger: { validateTransitions } }
  const db = new Annals(store, 'default')
  db.ledger.start()
  return db
}
