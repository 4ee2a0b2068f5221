import { AnnalsError } from '../core/errors.ts'
import { openEmbedded } from '../embedded/open.ts'
import type { EmbeddedStore } from '../embedded/store.ts'
import type { Committed } from '../engine/storage.ts'
import { History } from './crash-history.ts'
import { Clock, SHAPES, type Shape, tinyOptions, unevenly } from './crash-shapes.ts'
import { check, countIn, inTurns, randomOperations } from './crash-workload.ts'
import { Random } from './random.ts'
import { SimulatedDisk } from './simulated-disk.ts'

/**
 * Programs on disks that get full, at every size from nearly nothing on.
 * Commits are refused as `DISK_FULL` and leave nothing behind, readers go on,
 * opening works while the disk is full, and once it has room again everything
 * goes on with the same handle.
 */
export interface FullDiskReport {
  readonly seed: number
  disks: number
  acknowledged: number
  refused: number
  failedCheckpoints: number
  openedWhileFull: number
}

export async function fullDiskCampaign(campaign: {
  readonly seed: number
  readonly disks: number
}): Promise<FullDiskReport> {
  const random = new Random(campaign.seed)
  const report = newReport(campaign.seed)
  while (report.disks < campaign.disks) await fullDiskProgram(random.below(0x1_0000_0000), report)
  return report
}

/** One disk; everything follows from the seed. */
export async function fullDiskProgram(
  seed: number,
  report: FullDiskReport = newReport(seed),
): Promise<FullDiskReport> {
  report.disks++
  try {
    await new FullDisk(seed, report).run()
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`full disk with seed ${seed}: ${why}`, { cause: error })
  }
  return report
}

function newReport(seed: number): FullDiskReport {
  return { seed, disks: 0, acknowledged: 0, refused: 0, failedCheckpoints: 0, openedWhileFull: 0 }
}

class FullDisk {
  readonly #report: FullDiskReport
  readonly #random: Random
  readonly #shape: Shape
  readonly #disk: SimulatedDisk
  readonly #history: History
  readonly #clock = new Clock()
  #nextId = 0

  constructor(seed: number, report: FullDiskReport) {
    this.#report = report
    this.#random = new Random(seed)
    this.#shape = this.#random.pick(SHAPES)
    this.#history = new History(this.#shape.trees)
    const capacityBytes = this.#random.below(8 * (this.#shape.sizes.walBytes ?? 0))
    this.#disk = new SimulatedDisk({ seed, capacityBytes, later: unevenly(this.#random.fork()) })
  }

  async run(): Promise<void> {
    const store = await this.#open(this.#disk)
    for (let step = 0; step < 12; step++) await this.#step(store)
    await this.#openWhileFull()
    this.#disk.capacityBytes = Number.POSITIVE_INFINITY
    check(await this.#commit(store), 'a commit is refused although there is room again')
    await this.#checkAll(store)
    await inTurns(store.checkpoint())
    check(await this.#commit(store), 'a commit after the checkpoint is refused')
    const cut = this.#disk.afterPowerCut(this.#random.fork())
    await this.#checkAll(await this.#open(cut))
    await inTurns(store.close())
    check(this.#disk.openFiles === 0, `closing leaves ${this.#disk.openFiles} files open`)
    await this.#checkAll(await this.#open(this.#disk))
  }

  #open(disk: SimulatedDisk): Promise<EmbeddedStore> {
    return inTurns(openEmbedded(tinyOptions(disk, this.#shape, 'durable', () => this.#clock.highest)))
  }

  async #step(store: EmbeddedStore): Promise<void> {
    this.#clock.highest += 20
    const checkpoint = this.#random.chance(0.2) ? this.#checkpoint(store) : undefined
    const crowd = this.#random.chance(0.6) ? 1 : 3
    await Promise.all(Array.from({ length: crowd }, () => this.#commit(store)))
    await checkpoint
    await this.#checkAll(store)
  }

  async #checkpoint(store: EmbeddedStore): Promise<void> {
    try {
      await inTurns(store.checkpoint())
    } catch (error) {
      refuseOther(error)
      this.#report.failedCheckpoints++
    }
  }

  async #commit(store: EmbeddedStore): Promise<boolean> {
    const operations = randomOperations(this.#random, this.#shape, this.#nextId++, this.#clock)
    try {
      const { version } = (await inTurns(store.commit({ operations }))) as Committed
      this.#history.versions[this.#history.commits.length] = version
      this.#history.commits.push(operations)
      this.#report.acknowledged++
      return true
    } catch (error) {
      refuseOther(error)
      this.#report.refused++
      return false
    }
  }

  /** A process that is killed while the disk is full: the next one reads everything, and writes if there is room. */
  async #openWhileFull(): Promise<void> {
    for (const disk of [this.#disk.afterProcessCrash(), this.#disk.afterPowerCut(this.#random.fork())]) {
      const store = await this.#open(disk)
      await this.#checkAll(store)
      this.#report.openedWhileFull++
      const operations = randomOperations(this.#random, this.#shape, this.#nextId++, this.#clock)
      const refused = await inTurns(store.commit({ operations })).then(() => false, refuseOther)
      if (refused) await this.#checkAll(store)
    }
  }

  async #checkAll(store: EmbeddedStore): Promise<void> {
    const count = await countIn(store, this.#history)
    const expected = this.#history.commits.length
    check(count === expected, `${count} commits are there, not ${expected}`)
    const wrong = await this.#history.difference(store, count, this.#clock.highest)
    check(wrong === undefined, String(wrong))
    await store.verify()
  }
}

function refuseOther(error: unknown): true {
  if (error instanceof AnnalsError && error.code === 'DISK_FULL') return true
  throw error
}
