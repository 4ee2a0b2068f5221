import { AnnalsError, type ErrorCode } from '../../src/core/errors.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { SEGMENT_START } from '../../src/embedded/wal-segment.ts'
import type { Committed, Operation } from '../../src/engine/storage.ts'
import { Random } from '../../src/testing/random.ts'
import type { DiskCall, DiskCallKind, DiskFault } from '../simulation/disk-faults.ts'
import { inSeededSlices } from '../simulation/seeded-slices.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { type CrashReport, generation, type Line, newReport } from './crash-campaign.ts'
import { History } from './crash-history.ts'
import { Clock, type Shape, SMALL, TINY, tinyOptions, unevenly } from './crash-shapes.ts'
import { check, countIn, inTurns, randomOperations, runProgram } from './crash-workload.ts'

/**
 * Runs one small program once for each of its disk calls and each way in which that call can fail. Callers get an error
 * with a code, and readers see exactly the acknowledged commits. After a process crash or a power cut, the store opens
 * with these commits and accepts new ones.
 */
export interface FaultCampaign {
  readonly seed: number
  /** The number of programs. Each runs once per disk call and fault. */
  readonly programs: number
  /** The report to add to. By default a new one. */
  readonly report?: FaultReport
  /** The share of moments at which the programs that continue on the images crash. */
  readonly imageShare?: number
}

export interface FaultReport {
  readonly seed: number
  /** The number of disk calls at which a fault was injected. */
  calls: number
  runs: number
  /** The number of runs by the name of their fault. */
  readonly runsByFault: Record<string, number>
  /** The number of errors by their code. */
  readonly heard: Record<string, number>
  /** Handles that accepted commits again after the disk was healed, and handles that stayed read-only. */
  wentOn: number
  stayedReadOnly: number
  failedOpenings: number
  /** The images that were left behind by the runs. */
  readonly images: CrashReport
}

export interface Fault {
  readonly name: string
  readonly fault: Omit<DiskFault, 'at'>
  /** The kinds of calls at which the fault begins. */
  readonly begins: (kind: DiskCallKind) => boolean
}

const WRITES: readonly DiskCallKind[] = ['write', 'writeLater']
const SYNCS: readonly DiskCallKind[] = ['sync', 'syncLater', 'syncFolder']
const READS: readonly DiskCallKind[] = ['read', 'size', 'list', 'open', 'lock']
const takesRoom = ({ kind }: DiskCall): boolean => WRITES.includes(kind) || kind === 'create'
const changes = ({ kind }: DiskCall): boolean => !READS.includes(kind)
const forEver = { times: Number.POSITIVE_INFINITY }

const opens = ({ kind }: DiskCall): boolean => kind === 'open' || kind === 'create' || kind === 'list'

/**
 * A full disk still syncs, truncates and removes. A failing disk may still read. A dead disk does nothing. A process
 * without free descriptors can still use the files that it has open.
 */
export const FAULTS: readonly Fault[] = [
  { name: 'EIO once', fault: { error: 'EIO' }, begins: () => true },
  { name: 'EIO for ever', fault: { error: 'EIO', ...forEver }, begins: () => true },
  {
    name: 'EIO for ever, reads go on',
    fault: { error: 'EIO', when: changes, ...forEver },
    begins: kind => !READS.includes(kind),
  },
  {
    name: 'EIO for ever, of writes and syncs',
    fault: { error: 'EIO', when: ({ kind }) => WRITES.includes(kind) || SYNCS.includes(kind), ...forEver },
    begins: kind => WRITES.includes(kind) || SYNCS.includes(kind),
  },
  { name: 'ENOSPC once', fault: { error: 'ENOSPC' }, begins: kind => !READS.includes(kind) },
  {
    name: 'ENOSPC for ever',
    fault: { error: 'ENOSPC', when: takesRoom, ...forEver },
    begins: kind => WRITES.includes(kind) || kind === 'create',
  },
  {
    name: 'EMFILE once',
    fault: { error: 'EMFILE', when: opens },
    begins: kind => opens({ kind } as DiskCall),
  },
  {
    name: 'EMFILE for ever',
    fault: { error: 'EMFILE', when: opens, ...forEver },
    begins: kind => opens({ kind } as DiskCall),
  },
  { name: 'short write once', fault: { error: 'short' }, begins: kind => WRITES.includes(kind) },
  {
    name: 'short writes for ever',
    fault: { error: 'short', ...forEver },
    begins: kind => WRITES.includes(kind),
  },
]

const IMAGE_SHARE = 0.03

export async function faultCampaign(campaign: FaultCampaign): Promise<FaultReport> {
  const { seed, programs, report = newFaultReport(seed), imageShare = IMAGE_SHARE } = campaign
  const random = new Random(seed)
  for (let program = 0; program < programs; program++) {
    await faultProgram(random.below(0x1_0000_0000), { report, imageShare })
  }
  return report
}

/** @public The hunt for planted bugs loads it by name, and so do programs outside the tests. */
export function newFaultReport(seed: number): FaultReport {
  return {
    seed,
    calls: 0,
    runs: 0,
    runsByFault: {},
    heard: {},
    wentOn: 0,
    stayedReadOnly: 0,
    failedOpenings: 0,
    images: newReport(seed),
  }
}

/** The start of every run of a program: a store with unapplied commits in its log, as a killed process leaves it. */
interface Base {
  readonly seed: number
  readonly shape: Shape
  readonly disk: SimulatedDisk
  readonly history: History
  readonly time: number
  readonly imageShare: number
  /** Restarts the sequence of delays, so that every run has the same timing. */
  readonly again: () => void
}

export interface FaultProgramOptions {
  readonly report?: FaultReport
  /** The share of the runs to do. */
  readonly share?: number
  readonly only?: (fault: Fault, kind: DiskCallKind) => boolean
  /** The share of moments at which the program that continues on an image crashes. */
  readonly imageShare?: number
}

/** Runs one program for every disk call and fault. The seed determines everything. */
export function faultProgram(seed: number, options: FaultProgramOptions = {}): Promise<FaultReport> {
  return inSeededSlices(seed, () => runFaults(seed, options))
}

async function runFaults(seed: number, options: FaultProgramOptions): Promise<FaultReport> {
  const { report = newFaultReport(seed), share = 1, only = () => true } = options
  const choice = new Random(seed)
  const base = await prepareBase(seed, options.imageShare ?? IMAGE_SHARE)
  const kinds: DiskCallKind[] = []
  const sound = new FaultRun(base, undefined, report)
  sound.disk.onCall = ({ kind, phase }) => void (phase === 'start' && kinds.push(kind))
  await sound.run()
  const rejections: unknown[] = []
  const onRejection = (reason: unknown): void => void rejections.push(reason)
  process.on('unhandledRejection', onRejection)
  try {
    for (const [at, kind] of kinds.entries()) {
      report.calls++
      for (const fault of FAULTS) {
        if (!fault.begins(kind) || !only(fault, kind) || !choice.chance(share)) continue
        await faultRun(base, fault, at, kind, report, rejections)
      }
    }
  } finally {
    process.off('unhandledRejection', onRejection)
  }
  return report
}

async function faultRun(
  base: Base,
  { name, fault }: Fault,
  at: number,
  kind: DiskCallKind,
  report: FaultReport,
  rejections: readonly unknown[],
): Promise<void> {
  report.runs++
  report.runsByFault[name] = (report.runsByFault[name] ?? 0) + 1
  try {
    await new FaultRun(base, { ...fault, at }, report).run()
    // Unhandled rejections are reported between two turns of the event loop.
    if (report.runs % 8 === 0) await new Promise(resolve => setImmediate(resolve))
    check(rejections.length === 0, `a rejection that nobody hears: ${rejections[0]}`)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    const where = `fault program with seed ${base.seed} (${base.shape.name}), ${name} at call ${at}, ${kind}`
    throw new Error(`${where}: ${why}`, { cause: error })
  }
}

async function prepareBase(seed: number, imageShare: number): Promise<Base> {
  const random = new Random(seed)
  const usual = random.chance(0.7) ? SMALL : TINY
  // With many drops and often no cache, a commit can fail in the middle because a read failed, and must undo a drop.
  const sizes = random.chance(0.5) ? { ...usual.sizes, cacheBytes: 0 } : usual.sizes
  const shape = { ...usual, sizes, drops: 0.3 }
  let delays = new Random(seed)
  const disk = new SimulatedDisk({ seed, later: task => unevenly(delays)(task) })
  const history = new History(shape.trees)
  const clock = new Clock()
  const progress = { acknowledged: 0, durable: 0, issued: 0 }
  await runProgram(disk, history, {
    shape,
    random,
    durability: 'durable',
    steps: random.chance(0.2) ? 0 : 8,
    clock,
    progress,
    close: false,
    sound: true,
    learned: () => undefined,
  })
  const again = (): void => {
    delays = new Random(seed)
  }
  return {
    seed,
    shape,
    disk: disk.afterProcessCrash(),
    history,
    time: clock.highest,
    imageShare,
    again,
  }
}

/** The number of concurrent commits in each step. */
const CROWDS = [1, 1, 3, 1, 2, 1, 1] as const

class FaultRun {
  readonly disk: SimulatedDisk
  readonly #base: Base
  readonly #fault: DiskFault | undefined
  readonly #report: FaultReport
  readonly #random: Random
  readonly #clock: Clock
  /** The acknowledged commits, followed by those with an unknown outcome. */
  readonly #history: History
  #acknowledged: number
  #nextId: number
  readonly #heard = new Set<ErrorCode>()
  /** The files whose sync has failed; '' is the folder. */
  readonly #unsynced = new Set<string>()
  #readFailed = false
  /** A sync of a data file has failed. Readers may miss its unwritten blocks until the store is opened again. */
  #dataLost = false

  constructor(base: Base, fault: DiskFault | undefined, report: FaultReport) {
    this.#base = base
    this.#fault = fault
    this.#report = report
    this.disk = base.disk.afterProcessCrash()
    base.again()
    this.#random = new Random(base.seed + 1)
    this.#clock = new Clock(base.time)
    this.#history = base.history.upTo(base.history.commits.length)
    this.#acknowledged = this.#history.commits.length
    this.#nextId = this.#acknowledged
  }

  async run(): Promise<void> {
    if (this.#fault !== undefined) {
      this.disk.fail(this.#fault)
      this.disk.onCall = call => this.#watch(call)
    }
    const store = await this.#open()
    if (store !== undefined) await this.#use(store)
    this.disk.onCall = undefined
    // After the fault, the process closes the store, is killed, or loses power.
    await this.#surviveAll(store)
  }

  #watch({ phase, failed, kind, file }: DiskCall): void {
    if (phase === 'start' || !failed) return
    if (SYNCS.includes(kind)) this.#unsynced.add(file)
    if (READS.includes(kind)) this.#readFailed = true
    if (SYNCS.includes(kind) && file.startsWith('data')) this.#dataLost = true
  }

  async #open(): Promise<EmbeddedStore | undefined> {
    const { shape } = this.#base
    const opening = openEmbedded(tinyOptions(this.disk, shape, 'durable', () => this.#clock.now))
    const store = await this.#outcome(opening, ['IO_ERROR', 'DISK_FULL', 'OUTCOME_UNKNOWN'], 'opening')
    if (store === undefined) {
      this.#report.failedOpenings++
      this.disk.heal()
    }
    // Only syncs that fail after the opening make the handle read-only.
    this.#unsynced.clear()
    return store
  }

  async #use(store: EmbeddedStore): Promise<void> {
    for (const [step, crowd] of CROWDS.entries()) {
      await this.#read(store)
      this.#clock.highest += 20
      this.#clock.now = this.#clock.highest
      const checkpoint = step === 2 || step === 5 ? this.#checkpoint(store) : undefined
      await this.#commitAll(store, crowd)
      await checkpoint
    }
    await this.#read(store)
    this.disk.heal()
    await this.#useHealed(store)
  }

  /** A full disk that has free space again works as before. A handle whose sync failed stays read-only. */
  async #useHealed(store: EmbeddedStore): Promise<void> {
    // If a read failed while a commit was applied to the trees, the data in memory is unusable.
    this.#dataLost ||= this.#readFailed
    this.#readFailed = false
    await this.#read(store)
    const before = this.#acknowledged
    const heard = [...this.#heard]
    // An unused segment holds no data. The folder is checked by the images of power cuts. Failures after this point
    // could not be known when the commit was accepted.
    const unsynced = [...this.#unsynced].find(name => this.#holdsSomething(name))
    await this.#commitAll(store, 1)
    const works = this.#acknowledged > before
    if (works) this.#dataLost = false
    if (works) this.#report.wentOn++
    else this.#report.stayedReadOnly++
    const lacks = this.#fault?.error === 'EMFILE'
    check(
      !lacks || !heard.some(code => code !== 'IO_ERROR'),
      `without descriptors, callers hear ${heard.join()}`,
    )
    const full = this.#fault?.when === takesRoom || this.#fault?.error === 'short'
    check(!full || !heard.some(code => code !== 'DISK_FULL'), `on a full disk, callers hear ${heard.join()}`)
    const readOnly = heard.includes('READ_ONLY') || heard.includes('OUTCOME_UNKNOWN')
    if (works) check(unsynced === undefined, `after a failed sync of ${unsynced}, commits are taken again`)
    else {
      const told = this.#heard.has('READ_ONLY') || this.#heard.has('OUTCOME_UNKNOWN') || this.#dataLost
      check(told, 'a commit is refused, but neither as READ_ONLY nor as OUTCOME_UNKNOWN')
    }
    if (works) check(!readOnly, `after ${heard}, commits are taken again`)
    else check(!full && !lacks, 'after a full disk, or without descriptors, commits are refused for good')
    await this.#read(store)
  }

  #holdsSomething(name: string): boolean {
    const bytes = this.disk.toFiles()[name]
    return bytes?.subarray(SEGMENT_START).some(byte => byte !== 0) ?? false
  }

  async #checkpoint(store: EmbeddedStore): Promise<void> {
    await this.#outcome(
      store.checkpoint().then(() => true),
      ['DISK_FULL', 'IO_ERROR', 'OUTCOME_UNKNOWN', 'READ_ONLY'],
      'a checkpoint',
    )
  }

  async #commitAll(store: EmbeddedStore, crowd: number): Promise<void> {
    const attempts = Array.from({ length: crowd }, () => {
      const operations = randomOperations(this.#random, this.#base.shape, this.#nextId++, this.#clock)
      return { operations, answer: inTurns(store.commit({ operations })) }
    })
    const settled = await Promise.allSettled(attempts.map(({ answer }) => answer))
    const unknown: (readonly Operation[])[] = []
    for (const [i, result] of settled.entries()) {
      const { operations } = attempts[i]
      if (result.status === 'fulfilled') this.#acknowledge(operations, result.value as Committed)
      else {
        const code = this.#hear(result.reason, 'a commit')
        check(isRefusal(code) || code === 'OUTCOME_UNKNOWN', `a commit fails with ${code}: ${result.reason}`)
        if (code === 'OUTCOME_UNKNOWN') unknown.push(operations)
      }
    }
    this.#history.commits.push(...unknown)
  }

  #acknowledge(operations: readonly Operation[], { version, appended }: Committed): void {
    const index = this.#acknowledged++
    check(this.#history.commits.length === index, 'a commit is acknowledged after one of unknown outcome')
    this.#history.commits.push(operations)
    this.#history.versions[index] = version
    const expected = this.#history.answers(index).map(({ sequence }) => sequence)
    const found = appended.map(({ sequence }) => sequence)
    check(expected.join() === found.join(), `appends get the sequences ${found}, not ${expected}`)
  }

  /** Checks that readers see exactly the acknowledged commits, or get an error because the disk can't be read. */
  async #read(store: EmbeddedStore): Promise<void> {
    const reading = async (): Promise<true> => {
      const snapshot = await store.snapshot()
      try {
        const wrong = await this.#history.difference(snapshot, this.#acknowledged, snapshot.clock)
        check(wrong === undefined, `a reader finds that ${wrong}`)
      } finally {
        snapshot.release()
      }
      return true
    }
    const read = await this.#outcome(reading(), ['IO_ERROR', 'DISK_FULL'], 'a read')
    const excused = this.#readFailed || this.#dataLost
    check(read !== undefined || excused, 'a read fails although every read of the disk succeeds')
  }

  async #surviveAll(store: EmbeddedStore | undefined): Promise<void> {
    const images = [
      this.disk.afterProcessCrash(this.#random.fork()),
      this.disk.afterPowerCut(this.#random.fork()),
      this.disk.afterPowerCut(this.#random.fork()),
    ]
    for (const image of images) await this.#survive(image, 'killed')
    if (store !== undefined) {
      const closing = store.close().then(() => true)
      await this.#outcome(closing, ['DISK_FULL', 'IO_ERROR', 'OUTCOME_UNKNOWN', 'READ_ONLY'], 'closing')
      check(this.disk.openFiles === 0, `closing leaves ${this.disk.openFiles} files open`)
      await this.#survive(this.disk.afterPowerCut(this.#random.fork()), 'closed')
    }
    await this.#survive(this.disk, 'closed')
  }

  /** Checks that the next process finds all commits, can write more, and loses nothing in a later power cut. */
  async #survive(disk: SimulatedDisk, end: string): Promise<void> {
    const { shape } = this.#base
    const images = this.#report.images
    const line: Line = { shape, durability: 'durable', random: this.#random, report: images }
    const time = this.#clock.highest
    images.images++
    try {
      const copy = disk.afterProcessCrash()
      const store = await inTurns(openEmbedded(tinyOptions(copy, shape, 'durable', () => time)))
      const count = await countIn(store, this.#history)
      const most = this.#history.commits.length
      check(count !== undefined, 'a refused commit is there')
      check(count >= this.#acknowledged, `${count} commits are left of ${this.#acknowledged} acknowledged`)
      check(
        count === this.#acknowledged || count === most,
        `${count} commits are left, not all or none of ${most}`,
      )
      const wrong = await this.#history.difference(store, count, time, 'hashed')
      check(wrong === undefined, String(wrong))
      await store.verify()
      const progress = { acknowledged: this.#acknowledged, durable: this.#acknowledged, issued: count }
      const how = { share: this.#base.imageShare, sound: false }
      // The outcome of each commit is decided from here on, and a later crash must not change it.
      await generation(
        copy.afterProcessCrash(),
        this.#history.upTo(count),
        progress,
        new Clock(time),
        3,
        line,
        how,
      )
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      throw new Error(`${end} and opened again: ${why}`, { cause: error })
    }
  }

  /** The value of the promise, or undefined if it failed with one of the allowed codes. */
  async #outcome<T>(
    promise: Promise<T>,
    allowed: readonly ErrorCode[],
    what: string,
  ): Promise<T | undefined> {
    try {
      return await inTurns(promise)
    } catch (error) {
      const code = this.#hear(error, what)
      check(allowed.includes(code), `${what} fails with ${code}: ${error}`)
      return undefined
    }
  }

  #hear(error: unknown, what: string): ErrorCode {
    if (!(error instanceof AnnalsError)) throw error
    check(this.#fault !== undefined, `${what} fails without a fault: ${error.message}`)
    this.#heard.add(error.code)
    this.#report.heard[error.code] = (this.#report.heard[error.code] ?? 0) + 1
    return error.code
  }
}

function isRefusal(code: ErrorCode): boolean {
  return code === 'DISK_FULL' || code === 'IO_ERROR' || code === 'READ_ONLY'
}
