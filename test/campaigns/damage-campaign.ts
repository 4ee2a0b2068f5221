import { AnnalsError } from '../../src/core/errors.ts'
import { fileName, HEADER_BYTES } from '../../src/embedded/format.ts'
import { readManifests } from '../../src/embedded/manifest.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import type { Durability } from '../../src/engine/capabilities.ts'
import { Random } from '../../src/testing/random.ts'
import { inSeededSlices } from '../simulation/seeded-slices.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'

import { History } from './crash-history.ts'
import { Clock, SHAPES, type Shape, tinyOptions, unevenly } from './crash-shapes.ts'
import { check, countIn, inTurns, runProgram } from './crash-workload.ts'

/**
 * Damages the files of stores on the device: a flipped bit, a truncated file, a missing file, a file of another store.
 * Opening and reading such a store must fail with `CORRUPT`, return all data, or, if the end of the log is damaged,
 * report which commits were dropped. It never returns wrong data.
 */
export interface DamageReport {
  readonly seed: number
  stores: number
  damages: number
  /** The number of damages by outcome. */
  corrupt: number
  reported: number
  harmless: number
}

const DAMAGES_PER_STORE = 60
/** The maximum number of commits in one frame. */
const CROWD_MAX = 6

export async function damageCampaign(campaign: {
  readonly seed: number
  readonly stores: number
}): Promise<DamageReport> {
  const random = new Random(campaign.seed)
  const report = { seed: campaign.seed, stores: 0, damages: 0, corrupt: 0, reported: 0, harmless: 0 }
  while (report.stores < campaign.stores) {
    const seed = random.below(0x1_0000_0000)
    await inSeededSlices(seed, () => damageProgram(seed, report))
  }
  return report
}

/** Damages one store in many ways, one at a time. The seed determines everything. */
async function damageProgram(seed: number, report: DamageReport): Promise<void> {
  report.stores++
  const { disk, shape, durability, history, clock, random } = await storeAtRest(seed, seed)
  // The same program leaves the same files, except for the store's id.
  const twin = (await storeAtRest(seed, seed + 1)).disk.toFiles()
  const whole = await openEmbedded(
    tinyOptions(disk.afterProcessCrash(), shape, durability, () => clock.highest),
  )
  check(
    whole.recovery === undefined,
    `a store at rest, with seed ${seed}, had to be mended: ${JSON.stringify(whole.recovery)}`,
  )
  await whole.verify()
  for (let i = 0; i < DAMAGES_PER_STORE; i++) {
    const base = durability === 'durable' && random.chance(0.25) ? withoutNewestManifest(disk) : disk
    const done = damage(base.afterProcessCrash(), durability, twin, random)
    try {
      report.damages++
      const outcome = await outcomeOf(done, shape, history, clock.highest)
      if (done.isForeign && outcome !== 'corrupt') {
        const without = base.afterProcessCrash()
        without.remove(done.name)
        const needed = await outcomeOf({ ...done, disk: without }, shape, history, clock.highest)
        check(needed !== 'corrupt', 'a file of another store is taken for our own')
      }
      report[outcome]++
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      throw new Error(`damaged store with seed ${seed} (${shape.name}), ${done.what}: ${why}`, {
        cause: error,
      })
    }
  }
}

/** Makes a store that no process has open. The disk has its own seed, which determines the store's id. */
async function storeAtRest(
  seed: number,
  diskSeed: number,
): Promise<{
  readonly disk: SimulatedDisk
  readonly shape: Shape
  readonly durability: Durability
  readonly history: History
  readonly clock: Clock
  readonly random: Random
}> {
  const random = new Random(seed)
  const shape = random.pick(SHAPES)
  const durability = random.chance(0.7) ? 'durable' : 'relaxed'
  const used = new SimulatedDisk({ seed: diskSeed, later: unevenly(random.fork()) })
  const history = new History(shape.trees)
  const clock = new Clock()
  await runProgram(used, history, {
    shape,
    random,
    durability,
    steps: 6 + random.below(12),
    clock,
    progress: { acknowledged: 0, durable: 0, issued: 0 },
    // A relaxed store is durable only once it is closed.
    close: durability === 'relaxed' || random.chance(0.3),
    sound: true,
    learned: () => undefined,
  })
  // Waits until the background preparation of a segment has ended.
  for (let turn = 0; turn < 1_000; turn++) await undefined
  // No torn sectors, because the link to a prepared segment is synced only with the next commit.
  return { disk: used.afterPowerCut(random.fork(), 'none'), shape, durability, history, clock, random }
}

/** Removes the newest manifest. The store then depends on the previous one and on a longer log with linked segments. */
function withoutNewestManifest(disk: SimulatedDisk): SimulatedDisk {
  const image = disk.afterProcessCrash()
  const { current, previous } = readManifests(image.afterProcessCrash(), false)
  if (current !== undefined && previous !== undefined) image.remove(fileName('M', current.generation % 2))
  return image
}

interface Damage {
  readonly disk: SimulatedDisk
  readonly name: string
  readonly what: string
  /** The maximum number of commits that may be lost: those at the end of the log, if the log is damaged. */
  readonly lossMax: number
  readonly isForeign: boolean
}

function damage(
  disk: SimulatedDisk,
  durability: Durability,
  twin: Readonly<Record<string, Buffer>>,
  random: Random,
): Damage {
  const files = disk.files().filter(file => file.size > 0)
  const logs = files.filter(file => file.name.startsWith('wal'))
  const { name, size } = random.pick(logs.length > 0 && random.chance(0.4) ? logs : files)
  const draw = random.next()
  const offset = draw < 0.5 || draw > 0.8 ? random.below(size) : frameStart(disk, name, random)
  // A durable commit that is followed by another frame was synced, so recovery must not drop it as a torn tail.
  const isKnown = (behind: number): boolean =>
    name.startsWith('wal') && durability === 'durable' && isFollowed(disk, name, behind)
  if (draw < 0.6) {
    const lossMax = isKnown(offset) ? 0 : CROWD_MAX
    disk.flip(name, offset, 1 << random.below(8))
    const what = `a bit of ${name} flipped at ${offset}`
    return { disk, name, what, lossMax, isForeign: false }
  }
  if (draw < 0.85) {
    const lossMax = isKnown(size) ? 0 : Number.POSITIVE_INFINITY
    disk.cut(name, offset)
    const what = `${name} cut at ${offset}`
    return { disk, name, what, lossMax, isForeign: false }
  }
  if (draw < 0.93 || twin[name] === undefined) {
    disk.remove(name)
    return { disk, name, what: `${name} gone`, lossMax: 0, isForeign: false }
  }
  const mixed = SimulatedDisk.of({ ...disk.toFiles(), [name]: twin[name] })
  return { disk: mixed, name, what: `${name} of another store`, lossMax: 0, isForeign: true }
}

/** Whether the log has another frame after this position, in the same segment or a later one. */
function isFollowed(disk: SimulatedDisk, name: string, offset: number): boolean {
  return Object.entries(disk.toFiles()).some(
    ([file, bytes]) =>
      file.startsWith('wal') &&
      (file > name ? bytes.includes('ANRF') : file === name && bytes.indexOf('ANRF', offset + 1) >= 0),
  )
}

/** The start of a frame, or of the link to the next segment. A log that is cut between two frames looks complete. */
function frameStart(disk: SimulatedDisk, name: string, random: Random): number {
  const bytes = disk.toFiles()[name]
  const starts: number[] = name.startsWith('wal') ? [HEADER_BYTES] : []
  for (let at = bytes.indexOf('ANRF'); at >= 0; at = bytes.indexOf('ANRF', at + 1)) starts.push(at)
  return starts.length === 0 ? random.below(bytes.length) : random.pick(starts)
}

async function outcomeOf(
  { disk, name, lossMax }: Damage,
  shape: Shape,
  history: History,
  time: number,
): Promise<'corrupt' | 'reported' | 'harmless'> {
  try {
    const store = await inTurns(openEmbedded(tinyOptions(disk, shape, 'durable', () => time)))
    const count = await countIn(store, history)
    check(count !== undefined, 'there is a commit that never was')
    const wrong = await history.difference(store, count, time, 'hashed')
    check(wrong === undefined, String(wrong))
    await store.verify()
    if (count < history.commits.length) {
      // The previous manifest and the log replace a damaged manifest. A damaged block cannot be replaced.
      const lost = history.commits.length - count
      check(name.startsWith('wal') && lost <= lossMax, `${lost} commits are lost`)
      check(store.recovery?.tornTail !== undefined, `only ${count} commits are left, and nobody is told`)
    }
    return store.recovery === undefined ? 'harmless' : 'reported'
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'CORRUPT') return 'corrupt'
    throw error
  }
}
