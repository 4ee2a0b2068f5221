import { AnnalsError } from '../../src/core/errors.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import type { Durability } from '../../src/engine/capabilities.ts'
import type { Committed, Snapshot } from '../../src/engine/storage.ts'
import { Random } from '../../src/testing/random.ts'
import type { DiskCall } from '../simulation/disk-faults.ts'
import { inSeededSlices } from '../simulation/seeded-slices.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'

import { History } from './crash-history.ts'
import { Clock, SHAPES, type Shape, tinyOptions, unevenly } from './crash-shapes.ts'
import { check, countIn, inTurns, randomOperations } from './crash-workload.ts'

/**
 * Runs programs on disks that become full, with capacities from almost zero upwards. Commits fail with `DISK_FULL` and
 * leave no trace, reads still work, and a store can be opened on a full disk. Once there is free space, the same handle
 * accepts commits again.
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
  while (report.disks < campaign.disks) {
    const durability = report.disks % 2 === 0 ? 'durable' : 'relaxed'
    await fullDiskProgram(random.below(0x1_0000_0000), durability, report)
  }
  return report
}

/** Runs a program on one disk. The seed determines everything. */
export async function fullDiskProgram(
  seed: number,
  durability: Durability = 'durable',
  report: FullDiskReport = newReport(seed),
): Promise<FullDiskReport> {
  report.disks++
  try {
    await inSeededSlices(seed, () => new FullDisk(seed, durability, report).run())
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`full disk with seed ${seed}, ${durability}: ${why}`, { cause: error })
  }
  return report
}

function newReport(seed: number): FullDiskReport {
  return { seed, disks: 0, acknowledged: 0, refused: 0, failedCheckpoints: 0, openedWhileFull: 0 }
}

class FullDisk {
  readonly #report: FullDiskReport
  readonly #durability: Durability
  readonly #random: Random
  readonly #shape: Shape
  readonly #disk: SimulatedDisk
  readonly #history: History
  readonly #clock = new Clock()
  #nextId = 0
  /** The number of commits that a checkpoint has made durable, whatever their durability. */
  #checkpointed = 0
  #held: { readonly snapshot: Snapshot; readonly count: number } | undefined

  constructor(seed: number, durability: Durability, report: FullDiskReport) {
    this.#report = report
    this.#durability = durability
    this.#random = new Random(seed)
    const usual = this.#random.pick(SHAPES)
    // With many drops and often no cache, the blocks of a failed checkpoint are dropped before the next one, and then
    // only a snapshot reads them.
    const sizes = this.#random.chance(0.5) ? { ...usual.sizes, cacheBytes: 0 } : usual.sizes
    this.#shape = { ...usual, sizes, drops: 0.3 }
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
    await this.#checkpoint(store)
    check(await this.#commit(store), 'a commit after the checkpoint is refused')
    await this.#releaseSnapshot()
    const cut = this.#disk.afterPowerCut(this.#random.fork())
    await this.#checkAll(await this.#open(cut), this.#keptInPowerCut())
    await inTurns(store.close())
    check(this.#disk.openFiles === 0, `closing leaves ${this.#disk.openFiles} files open`)
    await this.#checkAll(await this.#open(this.#disk))
  }

  #open(disk: SimulatedDisk): Promise<EmbeddedStore> {
    return inTurns(openEmbedded(tinyOptions(disk, this.#shape, this.#durability, () => this.#clock.highest)))
  }

  async #step(store: EmbeddedStore): Promise<void> {
    this.#clock.highest += 20
    // Sometimes adds a little capacity, so that a later attempt succeeds.
    const more = this.#random.chance(0.3) ? (this.#shape.sizes.walBytes ?? 0) : 0
    this.#disk.capacityBytes += this.#random.below(2 * more + 1)
    // Sometimes only the manifest does not fit, so that a checkpoint fails after it has written its blocks.
    if (this.#random.chance(0.2)) this.#disk.fail({ error: 'ENOSPC', when: isManifest, times: 2 })
    const checkpoint = this.#random.chance(0.3) ? this.#checkpoint(store) : undefined
    const crowd = this.#random.chance(0.6) ? 1 : 3
    await Promise.all(Array.from({ length: crowd }, () => this.#commit(store)))
    await checkpoint
    this.#disk.heal()
    await this.#checkAll(store)
    if (this.#random.chance(0.2)) await this.#hold(store)
  }

  /** Takes a snapshot, which must read the same data later, whatever failed checkpoints have written since. */
  async #hold(store: EmbeddedStore): Promise<void> {
    await this.#releaseSnapshot()
    this.#held = { snapshot: await store.snapshot(), count: this.#history.commits.length }
  }

  async #releaseSnapshot(): Promise<void> {
    if (this.#held === undefined) return
    const { snapshot, count } = this.#held
    this.#held = undefined
    const wrong = await this.#history.difference(snapshot, count, snapshot.clock)
    check(wrong === undefined, `in a snapshot, ${wrong}`)
    snapshot.release()
  }

  async #checkpoint(store: EmbeddedStore): Promise<void> {
    const count = this.#history.commits.length
    try {
      await inTurns(store.checkpoint())
      this.#checkpointed = count
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

  /** Kills the process while the disk is full. The next process reads everything, and writes if there is free space. */
  async #openWhileFull(): Promise<void> {
    const left = [
      { disk: this.#disk.afterProcessCrash(), kept: this.#history.commits.length },
      { disk: this.#disk.afterPowerCut(this.#random.fork()), kept: this.#keptInPowerCut() },
    ]
    for (const { disk, kept } of left) {
      const store = await this.#open(disk)
      const count = await this.#checkAll(store, kept)
      this.#report.openedWhileFull++
      const operations = randomOperations(this.#random, this.#shape, this.#nextId++, this.#clock)
      const refused = await inTurns(store.commit({ operations })).then(() => false, refuseOther)
      if (refused) check((await this.#checkAll(store, kept)) === count, 'what is refused takes others along')
    }
  }

  #keptInPowerCut(): number {
    return this.#durability === 'durable' ? this.#history.commits.length : this.#checkpointed
  }

  /** Checks that the store holds the first commits, at least `atLeast` of them, without a gap. Returns their number. */
  async #checkAll(store: EmbeddedStore, atLeast: number = this.#history.commits.length): Promise<number> {
    const count = await countIn(store, this.#history)
    const made = this.#history.commits.length
    check(
      count !== undefined && count >= atLeast && count <= made,
      `${count} commits are there, not ${atLeast} to ${made}`,
    )
    const now = this.#clock.highest
    const wrong =
      (await this.#history.difference(store, count, now)) ??
      (await this.#history.differenceOfScopes(store, count, now))
    check(wrong === undefined, String(wrong))
    await store.verify()
    return count
  }
}

function isManifest({ kind, file }: DiskCall): boolean {
  return kind === 'write' && file.startsWith('manifest')
}

function refuseOther(error: unknown): true {
  if (error instanceof AnnalsError && error.code === 'DISK_FULL') return true
  throw error
}
