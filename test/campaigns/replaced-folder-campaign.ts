import { AnnalsError } from '../../src/core/errors.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import type { Durability } from '../../src/engine/capabilities.ts'
import { Random } from '../../src/testing/random.ts'
import { inSeededSlices } from '../simulation/seeded-slices.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'

import { Clock, SHAPES, type Shape, tinyOptions, unevenly } from './crash-shapes.ts'
import { check, inTurns, randomOperations } from './crash-workload.ts'

/**
 * Replaces a store's folder at some disk call, during commits and checkpoints. From then on the handle acknowledges no
 * new commit, and another store that is created at the same path keeps all its data.
 */
export interface ReplacedFolderReport {
  readonly seed: number
  folders: number
  acknowledged: number
  refused: number
  failedCheckpoints: number
}

export async function replacedFolderCampaign(campaign: {
  readonly seed: number
  readonly folders: number
}): Promise<ReplacedFolderReport> {
  const random = new Random(campaign.seed)
  const report = { seed: campaign.seed, folders: 0, acknowledged: 0, refused: 0, failedCheckpoints: 0 }
  while (report.folders < campaign.folders) {
    const seed = random.below(0x1_0000_0000)
    try {
      await inSeededSlices(seed, () => replacedFolderProgram(seed, report))
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      throw new Error(`replaced folder with seed ${seed}: ${why}`, { cause: error })
    }
  }
  return report
}

const STEPS = 8
const OTHER_COMMITS = 5

async function replacedFolderProgram(seed: number, report: ReplacedFolderReport): Promise<void> {
  report.folders++
  const random = new Random(seed)
  const shape = random.pick(SHAPES)
  const durability = random.chance(0.5) ? 'durable' : 'relaxed'
  const disk = new SimulatedDisk({ seed, later: unevenly(random.fork()) })
  const clock = new Clock()
  const store = await open(disk, shape, durability, clock)
  let left = random.below(60)
  let isReplaced = false
  disk.onCall = ({ phase }) => {
    if (phase !== 'end' || isReplaced || left-- > 0) return
    disk.replaceFolder()
    isReplaced = true
  }
  let id = 0
  const commit = async (): Promise<void> => {
    const before = isReplaced
    const operations = randomOperations(random, shape, id++, clock)
    try {
      await inTurns(store.commit({ operations }))
      check(!before, 'a commit is acknowledged after the folder was replaced')
      report.acknowledged++
    } catch (error) {
      refuseOther(error, isReplaced)
      report.refused++
    }
  }
  for (let step = 0; step < STEPS; step++) {
    const checkpoint = random.chance(0.3) ? attempt(store.checkpoint(), () => isReplaced) : undefined
    await Promise.all(Array.from({ length: random.chance(0.6) ? 1 : 3 }, commit))
    if ((await checkpoint) === false) report.failedCheckpoints++
    // Waits for the next turn of the event loop. A relaxed store checks its folder once per turn.
    for (let turn = 0; turn < 3; turn++) await undefined
  }
  disk.onCall = undefined
  if (!isReplaced) disk.replaceFolder()
  isReplaced = true
  await livesOn(disk, shape, durability, clock, async () => {
    await commit()
    await attempt(store.checkpoint(), () => true)
    await attempt(store.close(), () => true)
  })
}

/** Checks that another store at the same path keeps its data, whatever the first process does. */
async function livesOn(
  disk: SimulatedDisk,
  shape: Shape,
  durability: Durability,
  clock: Clock,
  meanwhile: () => Promise<void>,
): Promise<void> {
  const random = new Random(1)
  const other = await open(disk, shape, durability, clock)
  for (let i = 0; i < OTHER_COMMITS; i++) {
    await inTurns(other.commit({ operations: randomOperations(random, shape, i, clock) }))
  }
  const { version, storeId } = other.stats()
  await meanwhile()
  await inTurns(other.checkpoint())
  await inTurns(other.close())
  const again = await open(disk, shape, durability, clock)
  check(
    again.stats().version >= version,
    `the new store holds ${again.stats().version} commits, not ${version}`,
  )
  check(again.stats().storeId === storeId, 'the new store has another id')
  await again.verify()
  await again.close()
}

function open(
  disk: SimulatedDisk,
  shape: Shape,
  durability: Durability,
  clock: Clock,
): Promise<EmbeddedStore> {
  return inTurns(openEmbedded(tinyOptions(disk, shape, durability, () => clock.highest)))
}

async function attempt(promise: Promise<void>, isReplaced: () => boolean): Promise<boolean> {
  try {
    await inTurns(promise)
    return true
  } catch (error) {
    refuseOther(error, isReplaced())
    return false
  }
}

function refuseOther(error: unknown, isReplaced: boolean): void {
  const isRefusal = error instanceof AnnalsError && (error.code === 'IO_ERROR' || error.code === 'READ_ONLY')
  if (!isRefusal || !isReplaced) throw error
}
