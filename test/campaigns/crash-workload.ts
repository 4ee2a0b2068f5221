import { sha256 } from '../../src/core/hash.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { TAGS } from '../../src/engine/keys.ts'
import type { Committed, Operation, Snapshot, TreeId } from '../../src/engine/storage.ts'
import type { Random } from '../../src/testing/random.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { type History, MARKER, sameAnswers } from './crash-history.ts'
import { type Clock, type Shape, tinyOptions } from './crash-shapes.ts'

/**
 * Small random programs on a store on a simulated disk: single and concurrent commits, appends, expiry, drops, updates,
 * checkpoints, snapshots, backups, and reopening, with a concurrent reader.
 */

/** The number of commits in each state at one moment. */
export interface Progress {
  /** Commits that were acknowledged or read. They survive a process crash. */
  acknowledged: number
  /** Commits that survive a power cut. */
  durable: number
  /** Commits that were requested. */
  issued: number
}

export interface Program {
  readonly shape: Shape
  readonly random: Random
  readonly durability: 'durable' | 'relaxed'
  readonly steps: number
  readonly clock: Clock
  readonly progress: Progress
  readonly close: boolean
  /** Whether all data that the opened store shows is durable. After a failed sync it may not be, until the next commit. */
  readonly sound: boolean
  /** Called when the program has learned of data that must not be lost from now on. */
  readonly learned: () => void
}

export interface ProgramCounts {
  commits: number
  drops: number
  checkpoints: number
  snapshots: number
  backups: number
  reopenings: number
}

/** Runs a random program to its end. `progress` is correct at every moment in between. */
export async function runProgram(
  disk: SimulatedDisk,
  history: History,
  program: Program,
): Promise<ProgramCounts> {
  const run = new Run(disk, history, program)
  await inTurns(run.open(program.sound))
  for (let step = 0; step < program.steps; step++) await inTurns(run.step())
  await inTurns(run.end())
  return run.counts
}

interface Held {
  readonly snapshot: Snapshot
  readonly count: number
}

/** A program while it runs. */
class Run {
  readonly counts: ProgramCounts = {
    commits: 0,
    drops: 0,
    checkpoints: 0,
    snapshots: 0,
    backups: 0,
    reopenings: 0,
  }
  readonly #disk: SimulatedDisk
  readonly #history: History
  readonly #program: Program
  readonly #tickMs: number
  #store!: EmbeddedStore
  #held: Held | undefined
  #lastTime = 0
  #sound = false
  #reader: Promise<unknown> | undefined
  #reading = false

  constructor(disk: SimulatedDisk, history: History, program: Program) {
    this.#disk = disk
    this.#history = history
    this.#program = program
    this.#tickMs = program.random.pick([0.1, 0.7, 2.5])
  }

  async open(sound: boolean): Promise<void> {
    const { shape, durability, clock, progress, random } = this.#program
    const options = tinyOptions(this.#disk, shape, durability, () => clock.now, this.#tickMs)
    this.#store = await openEmbedded(options)
    const count = await countIn(this.#store, this.#history)
    check(count !== undefined && count >= progress.acknowledged, 'opening shows what was acknowledged')
    this.#sound = sound
    if (sound) {
      // Programs build on the data that an opened store shows, so it must be durable, whichever process wrote it.
      progress.acknowledged = count
      progress.durable = count
      this.#program.learned()
    }
    // The reader's failure is thrown when the reader is stopped, not as an unhandled rejection.
    if (random.chance(0.4)) this.#reader = this.#read().catch((error: unknown) => error)
  }

  async step(): Promise<void> {
    const { random, clock } = this.#program
    clock.pass(random)
    const waiting: Promise<unknown>[] = []
    const crowd = random.chance(0.6) ? 1 : 1 + random.below(6)
    if (crowd === 1 && random.chance(0.15)) waiting.push(this.#update())
    else for (let i = 0; i < crowd; i++) waiting.push(this.#commit())
    const draw = random.next()
    if (draw < 0.1) waiting.push(this.#checkpoint())
    else if (draw < 0.13) waiting.push(this.#backup())
    else if (draw < 0.2) waiting.push(this.#takeSnapshot())
    await Promise.all(waiting)
    if (random.chance(0.03)) await this.#reopen()
  }

  async end(): Promise<void> {
    await this.#releaseSnapshot()
    await this.#checkAll()
    await this.#stopReader()
    if (!this.#program.close) return
    await this.#store.close()
    check(this.#disk.openFiles === 0, `closing leaves ${this.#disk.openFiles} files open`)
  }

  async #commit(): Promise<void> {
    const index = this.#history.commits.length
    const { random, shape, clock } = this.#program
    const operations = randomOperations(random, shape, this.#history.nextMarker, clock)
    this.#issue(operations)
    const outcome = (await this.#store.commit({ operations })) as Committed
    this.#acknowledged(index, outcome)
  }

  /** Increments a counter with `update`, and checks that it found the value of the last increment. */
  async #update(): Promise<void> {
    const { markerScope: scope } = this.#history
    const place = { scope, tag: MARKER.tag, key: 'updates' }
    const before = this.#history.valueOf(place, place.key)
    const index = this.#history.commits.length
    const value = String(Number(before ?? 0) + 1)
    const operations: Operation[] = [{ op: 'put', ...place, value }, marker(scope, this.#history.nextMarker)]
    this.#issue(operations)
    const outcome = await this.#store.update([place], ([found]) => {
      check(found?.value === before, `an update finds ${found?.value}, not ${before}`)
      return { operations, result: undefined }
    })
    this.#acknowledged(index, outcome)
  }

  #issue(operations: readonly Operation[]): void {
    this.#history.commits.push(operations)
    this.#program.progress.issued = this.#history.commits.length
    this.counts.commits++
    if (operations.some(({ op }) => op === 'drop')) this.counts.drops++
  }

  #acknowledged(index: number, { version, time, appended }: Committed): void {
    check(
      sameAnswers(appended, this.#history.answers(index)),
      `the appends of commit ${index} are answered right`,
    )
    check(time >= this.#lastTime, `commit ${index} has time ${time}, the one before it ${this.#lastTime}`)
    this.#lastTime = time
    this.#history.versions[index] = version
    this.#sound = true
    this.#learn(index + 1)
  }

  #learn(count: number): void {
    const { progress, durability, learned } = this.#program
    if (count <= progress.acknowledged) return
    progress.acknowledged = count
    if (durability === 'durable' && this.#sound) progress.durable = count
    learned()
  }

  async #checkpoint(): Promise<void> {
    const count = this.#program.progress.acknowledged
    await this.#store.checkpoint()
    this.counts.checkpoints++
    this.#promiseDurable(count)
  }

  #promiseDurable(count: number): void {
    const { progress, learned } = this.#program
    if (count <= progress.durable) return
    progress.durable = count
    learned()
  }

  /** A backup contains every commit that was acknowledged before it, and survives a power cut as soon as it is complete. */
  async #backup(): Promise<void> {
    const { progress, random, shape, durability, clock } = this.#program
    const count = progress.acknowledged
    const target = new SimulatedDisk({ seed: random.below(0x1_0000_0000) })
    await this.#store.backup(target.handle())
    this.counts.backups++
    this.#promiseDurable(count)
    const left = target.afterPowerCut(random.fork())
    const copy = await openEmbedded(tinyOptions(left, shape, durability, () => clock.highest))
    const held = await countIn(copy, this.#history)
    check(held !== undefined && held >= count, `a backup holds ${held} commits, not ${count}`)
    const wrong = await this.#history.difference(copy, held, clock.highest)
    check(wrong === undefined, `in a backup, ${wrong}`)
    await copy.verify()
  }

  async #takeSnapshot(): Promise<void> {
    await this.#releaseSnapshot()
    const snapshot = await this.#snapshotByRightClock()
    const count = await countIn(snapshot, this.#history)
    check(count !== undefined, 'a snapshot has a known marker')
    this.#learn(count)
    this.counts.snapshots++
    this.#held = { snapshot, count }
  }

  /** Checks that the snapshot still reads the data from when it was taken, and releases it. */
  async #releaseSnapshot(): Promise<void> {
    const held = this.#held
    if (held === undefined) return
    this.#held = undefined
    const wrong = await this.#history.difference(held.snapshot, held.count, held.snapshot.clock)
    held.snapshot.release()
    check(wrong === undefined, `in a snapshot, ${wrong}`)
  }

  async #reopen(): Promise<void> {
    await this.#releaseSnapshot()
    await this.#stopReader()
    await this.#store.close()
    check(this.#disk.openFiles === 0, `closing leaves ${this.#disk.openFiles} files open`)
    this.counts.reopenings++
    await this.open(true)
    await this.#checkAll()
  }

  /**
   * Takes a snapshot at the highest time so far. With a clock that was set back, expired entries may or may not be
   * visible again.
   */
  #snapshotByRightClock(): Promise<Snapshot> {
    const { clock } = this.#program
    clock.now = clock.highest
    return this.#store.snapshot()
  }

  async #checkAll(): Promise<void> {
    const snapshot = await this.#snapshotByRightClock()
    const count = this.#history.commits.length
    const wrong =
      (await this.#history.difference(snapshot, count, snapshot.clock)) ??
      (await this.#history.differenceOfScopes(this.#store, count, snapshot.clock))
    snapshot.release()
    check(wrong === undefined, `while it runs, ${wrong}`)
    await this.#store.verify()
  }

  /** Reads the marker in a loop. A commit that was read counts as acknowledged. */
  async #read(): Promise<void> {
    const store = this.#store
    this.#reading = true
    while (this.#reading) {
      const count = await countIn(store, this.#history)
      check(count !== undefined, 'a reader finds a known marker')
      this.#learn(count)
      // `scopes` applies the commits that recovery found in the log, also while a checkpoint is about to do so.
      if (this.#program.random.chance(0.02)) await store.scopes({ limit: 3 })
    }
  }

  async #stopReader(): Promise<void> {
    this.#reading = false
    const failure = await this.#reader
    this.#reader = undefined
    if (failure !== undefined) throw failure
  }
}

/** The number of commits in a store according to its marker; undefined for an unknown marker. */
export async function countIn(reader: Pick<Snapshot, 'get'>, history: History): Promise<number | undefined> {
  return history.countOf((await reader.get(history.markerScope, MARKER.tag, MARKER.key))?.value)
}

/** Makes the operations of one commit. They always change something, so that each commit has its own version. */
export function randomOperations(random: Random, shape: Shape, id: number, clock: Clock): Operation[] {
  const operations: Operation[] = []
  const usable = shape.trees.slice(1).filter(({ tag }) => tag < 0x80)
  if (random.chance(shape.sweeps)) sweep(random, shape, usable, operations)
  else if (shape.loads > 0 && random.chance(shape.loads)) load(random, shape, usable, id, operations)
  else {
    const count = random.chance(0.7) ? 1 : 1 + random.below(5)
    for (let i = 0; i < count; i++)
      operations.push(randomOperation(random, shape, usable, `${id}-${i}`, clock))
  }
  if (random.chance(shape.drops)) {
    const { scope } = random.pick(usable)
    operations.splice(random.below(operations.length + 1), 0, { op: 'drop', scope })
  }
  operations.push(marker(shape.trees[0].scope, id))
  return operations
}

function randomOperation(
  random: Random,
  shape: Shape,
  usable: readonly TreeId[],
  id: string,
  clock: Clock,
): Operation {
  const { scope, tag } = random.pick(usable)
  const value = randomValue(random, shape, id)
  if (tag === TAGS.event) {
    // A third of the dedupe keys are likely duplicates.
    const dedupe = { key: random.chance(0.33) ? `d-${random.below(8)}` : `d-${id}` }
    return { op: 'append', scope, tag, body: value, bodyHash: sha256(value), dedupe }
  }
  const key = random.pick(shape.keys)
  if (random.chance(0.25)) return { op: 'delete', scope, tag, key }
  const expires = random.chance(0.15) ? { expiresAt: clock.highest + 1 + random.below(200) } : {}
  return { op: 'put', scope, tag, key, value, ...expires }
}

/** Deletes neighbouring keys in one or more trees, so that leaves and whole trees become empty. */
function sweep(random: Random, shape: Shape, usable: readonly TreeId[], operations: Operation[]): void {
  const trees = usable.filter(({ tag }) => tag !== TAGS.event)
  const first = random.below(trees.length)
  const keys = shape.keys.slice(random.below(shape.keys.length))
  for (const { scope, tag } of trees.slice(first, first + 1 + random.below(8))) {
    for (const key of keys.slice(0, 40)) operations.push({ op: 'delete', scope, tag, key })
  }
}

/** Writes consecutive keys in order, at the end of a tree or within it, so that leaves fill one after the other. */
function load(
  random: Random,
  shape: Shape,
  usable: readonly TreeId[],
  id: number,
  operations: Operation[],
): void {
  const { scope, tag } = random.pick(usable.filter(tree => tree.tag !== TAGS.event))
  const sorted = shape.keys.toSorted()
  const count = Math.min(12 + random.below(30), sorted.length)
  const end = id % 2 === 0 ? sorted.length : count + (id % (sorted.length - count + 1))
  const keys = sorted.slice(end - count, end)
  for (const key of keys) operations.push({ op: 'delete', scope, tag, key })
  for (const [i, key] of keys.entries()) {
    const value = randomValue(random, shape, `${id}-${i}`).padEnd(3 * shape.valueBytes, '.')
    operations.push({ op: 'put', scope, tag, key, value })
  }
}

/** The last operation of every commit, which writes the commit's number. */
function marker(scope: string, id: number): Operation {
  return { op: 'put', scope, tag: MARKER.tag, key: MARKER.key, value: String(id) }
}

function randomValue(random: Random, shape: Shape, id: string): string {
  const bytes = random.below(random.chance(0.1) ? shape.rareBytes : shape.valueBytes)
  const unit = `${id}.${random.below(10)} `
  return unit.repeat(Math.ceil((bytes + 1) / unit.length))
}

/** Programs wait for the microtask queue only. A promise that is pending after this many turns will never settle. */
const TURNS_MAX = 100_000

/** Awaits the promise, and fails if it hangs. */
export async function inTurns<T>(promise: Promise<T>): Promise<T> {
  let done = false
  const settled = (): void => {
    done = true
  }
  promise.then(settled, settled)
  for (let turn = 0; turn < TURNS_MAX && !done; turn++) await undefined
  check(done, `it hangs: nothing came in ${TURNS_MAX} turns`)
  return promise
}

export function check(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(message)
}
