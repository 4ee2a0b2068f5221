import { expect, it } from 'vitest'
import { type ByteString, fromU64 } from '../../core/bytes.ts'
import { dedupeTag, headTag, isEngineTag, isLogTag, TAGS } from '../../engine/keys.ts'
import { parseLogEntry } from '../../engine/log.ts'
import type {
  Appended,
  BoundedRange,
  Commit,
  Entry,
  Operation,
  Place,
  Range,
  Reader,
  Snapshot,
  Storage,
} from '../../engine/storage.ts'
import { Random, seedOfRun } from '../random.ts'
import { ReferenceStorage } from '../reference-storage.ts'
import { SimulatedClock } from '../simulated-clock.ts'
import { bodyHashOf, type Suite } from './suite.ts'

/** One step of a program, as plain data, so that a failing program can be shortened. */
type ProgramStep =
  | {
      readonly do: 'commit'
      readonly points: Place[]
      readonly ranges: Range[]
      readonly slot: number
      readonly operations: Operation[]
    }
  | {
      readonly do: 'update'
      readonly places: Place[]
      readonly ranges: BoundedRange[]
      readonly operations: Operation[]
    }
  | { readonly do: 'get'; readonly place: Place; readonly slot: number }
  | { readonly do: 'scan'; readonly range: Range; readonly slot: number }
  | { readonly do: 'scopes'; readonly from: ByteString | undefined; readonly to: ByteString | undefined }
  | { readonly do: 'snapshot' | 'release'; readonly slot: number }
  | { readonly do: 'jump'; readonly ms: number }

const STEPS = 60
const PROGRAMS = 200
/** The number of programs that run concurrently, each on its own storage, because they mostly wait for the disk. */
const LANES = 4
/** The number of snapshots held at a time. A slot without a snapshot means the newest state. */
const SLOTS = 3
const SCOPES: readonly ByteString[] = ['a', 'a:b']
const SCOPE_BOUNDS: readonly (ByteString | undefined)[] = [undefined, '', 'a', 'a\0', 'a:b', 'b']
const KEYS: readonly ByteString[] = ['\0', 'k', 'k\0', 'kk', 'l', '\x80', '\xff', '\xff\xff']
const TREE_TAGS: readonly number[] = [TAGS.kv, TAGS.state]
const LOG_TAGS: readonly number[] = [TAGS.event, TAGS.ledger]
/** The logs, and the trees that the engine keeps for them. */
const LOG_TREE_TAGS: readonly number[] = LOG_TAGS.flatMap(tag => [tag, dedupeTag(tag), headTag(tag)])

/** Random programs give the same results on the engine and on the reference storage. */
export function testRandomPrograms(suite: Suite): void {
  const seed = suite.options.seed ?? seedOfRun()
  const count = suite.options.programs ?? PROGRAMS
  const hasClock = suite.options.noClock === undefined
  it(`${count} random programs answer like the reference (ANNALS_SEED=${seed})`, async () => {
    const random = new Random(seed)
    const programs = Array.from({ length: count }, () => {
      const lives = hasClock && random.chance(0.5)
      return Array.from({ length: STEPS }, () => randomStep(random, lives))
    })
    const waiting = programs.entries()
    const lanes = Array.from({ length: LANES }, async () => {
      for (const [number, program] of waiting) {
        if ((await firstDifference(suite, program)) === undefined) continue
        const { steps, difference } = await shrunk(suite, program)
        const listing = steps.map(step => JSON.stringify(step)).join('\n')
        expect.fail(`ANNALS_SEED=${seed}, program ${number}, shortened to:\n${listing}\n${difference}`)
      }
    })
    await Promise.all(lanes)
  }, 300_000)
}

/**
 * A random step. With lifetimes (`lives`) the clock is never set back, because an engine may or may not have removed the
 * entries that would be present again.
 */
function randomStep(random: Random, lives: boolean): ProgramStep {
  const slot = random.below(SLOTS)
  const dice = random.next()
  const few = <T>(max: number, make: () => T): T[] => Array.from({ length: random.below(max + 1) }, make)
  if (dice < 0.4) {
    return {
      do: 'commit',
      slot,
      points: few(2, () => randomPlace(random)),
      ranges: few(1, () => randomRange(random)),
      operations: few(4, () => randomOperation(random, lives)),
    }
  }
  if (dice < 0.55) {
    return {
      do: 'update',
      places: few(3, () => randomPlace(random)),
      ranges: few(1, () => ({ ...randomRange(random), limit: 1 + random.below(4) })),
      operations: few(3, () => randomOperation(random, lives)),
    }
  }
  if (dice < 0.65) return { do: 'get', place: randomPlace(random), slot }
  if (dice < 0.78) return { do: 'scan', range: randomRange(random), slot }
  if (dice < 0.8) return { do: 'scopes', from: random.pick(SCOPE_BOUNDS), to: random.pick(SCOPE_BOUNDS) }
  if (dice < 0.88) return { do: 'snapshot', slot }
  if (dice < 0.94) return { do: 'release', slot }
  return { do: 'jump', ms: random.pick([1, 5, 50, lives ? 20 : -20]) }
}

function randomPlace(random: Random): Place {
  return { scope: random.pick(SCOPES), tag: random.pick(TREE_TAGS), key: random.pick(KEYS) }
}

function randomRange(random: Random): Range {
  const isLog = random.chance(0.3)
  const bound = (): ByteString | undefined => {
    if (random.chance(0.4)) return undefined
    return isLog ? `\0\0\0\0\0\0\0${String.fromCharCode(random.below(12))}` : random.pick(KEYS)
  }
  return {
    scope: random.pick(SCOPES),
    tag: random.pick(isLog ? LOG_TREE_TAGS : TREE_TAGS),
    from: bound(),
    to: bound(),
    reverse: random.chance(0.5),
    limit: random.chance(0.5) ? 1 + random.below(4) : undefined,
  }
}

function randomOperation(random: Random, lives: boolean): Operation {
  const value = random.bytes(random.below(5))
  const dice = random.next()
  if (dice < 0.22) return { op: 'delete', ...randomPlace(random) }
  if (dice < 0.25) return { op: 'drop', scope: random.pick(SCOPES) }
  if (dice < 0.65) {
    // Expiries are relative to the start of the clock, which `jump` steps then move.
    const expiresAt = random.chance(0.7) || !lives ? 0 : new SimulatedClock().now() + random.below(100)
    const time = random.chance(0.9) ? {} : { time: random.below(1_000) }
    return { op: 'put', ...randomPlace(random), value, expiresAt, ...time }
  }
  const dedupe = random.chance(0.5) ? { dedupe: { key: random.pick(KEYS), memo: random.bytes(2) } } : {}
  const tree = { scope: random.pick(SCOPES), tag: random.pick(LOG_TAGS) }
  return { op: 'append', ...tree, body: value, bodyHash: bodyHashOf(value), ...dedupe }
}

/** Runs the program on the engine and on the reference, and describes the first difference, if any. */
async function firstDifference(suite: Suite, program: readonly ProgramStep[]): Promise<string | undefined> {
  const clock = new SimulatedClock()
  const hasClock = suite.options.noClock === undefined
  const engine = new Player(await suite.open(hasClock ? { clock: clock.now } : undefined), hasClock)
  const reference = new Player(new ReferenceStorage({ clock: clock.now }), hasClock)
  try {
    for (const [i, step] of program.entries()) {
      if (step.do === 'jump') clock.jump(step.ms)
      const [found, expected] = [await engine.play(step, i), await reference.play(step, i)]
      if (found !== expected) return `step ${i} (${step.do}): ${found}\nthe reference: ${expected}`
    }
    return undefined
  } catch (error) {
    return `failed: ${String(error)}`
  } finally {
    await engine.close()
  }
}

/** Removes the steps that the failure doesn't need: halves first, then smaller parts. */
async function shrunk(
  suite: Suite,
  program: readonly ProgramStep[],
): Promise<{ steps: readonly ProgramStep[]; difference: string }> {
  let steps = program
  for (let size = Math.ceil(steps.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let start = 0; start < steps.length; ) {
      const fewer = [...steps.slice(0, start), ...steps.slice(start + size)]
      if ((await firstDifference(suite, fewer)) === undefined) start += size
      else steps = fewer
    }
  }
  return {
    steps,
    difference: (await firstDifference(suite, steps)) ?? 'it passed when run again: not deterministic',
  }
}

/** Runs steps on one storage and returns each outcome in a form that does not depend on the engine. */
class Player {
  readonly #storage: Storage
  readonly #hasClock: boolean
  readonly #slots = new Map<number, Snapshot>()
  /** Maps the version of a commit to the index of its step, because engines may number versions differently. */
  readonly #commits = new Map<number, number>()

  constructor(storage: Storage, hasClock: boolean) {
    this.#storage = storage
    this.#hasClock = hasClock
  }

  async play(step: ProgramStep, index: number): Promise<string> {
    return JSON.stringify((await this.#play(step, index)) ?? null)
  }

  async close(): Promise<void> {
    for (const snapshot of this.#slots.values()) snapshot.release()
    await this.#storage.close()
  }

  async #play(step: ProgramStep, index: number): Promise<unknown> {
    switch (step.do) {
      case 'get': {
        const { scope, tag, key } = step.place
        return this.#told(await this.#reader(step.slot).get(scope, tag, key), tag)
      }
      case 'scan':
        return (await this.#reader(step.slot).scan(step.range)).map(entry =>
          this.#told(entry, step.range.tag),
        )
      case 'scopes': {
        const found = await this.#storage.scopes({ from: step.from, to: step.to, limit: SCOPES.length })
        // An engine may or may not list a scope whose entries have all expired.
        const living = await Promise.all(found.map(scope => this.#holdsLiving(scope)))
        return found.filter((_, i) => living[i])
      }
      case 'snapshot':
        this.#slots.get(step.slot)?.release()
        this.#slots.set(step.slot, await this.#storage.snapshot())
        return undefined
      case 'release':
        this.#slots.get(step.slot)?.release()
        this.#slots.delete(step.slot)
        return undefined
      case 'commit': {
        const outcome = await this.#storage.commit(await this.#commitOf(step))
        if (outcome.status === 'conflict') return 'conflict'
        this.#note(outcome.version, index)
        return outcome.appended.map(appended => this.#toldAppended(appended))
      }
      case 'update': {
        const { places, ranges } = step
        const { result, appended, version } = await this.#storage.update(
          places,
          (found, scanned) => {
            const all = found.map(entry => entry?.value ?? '-').join('')
            const operations = step.operations.map(operation =>
              operation.op === 'put' ? { ...operation, value: operation.value + all.slice(0, 9) } : operation,
            )
            return { operations, result: { found, scanned } }
          },
          { ranges },
        )
        const told = [
          result.found.map((entry, i) => this.#told(entry, places[i].tag)),
          result.scanned.map((entries, i) => entries.map(entry => this.#told(entry, ranges[i].tag))),
        ]
        if (step.operations.length > 0) this.#note(version, index)
        return [told, appended.map(answer => this.#toldAppended(answer))]
      }
      case 'jump':
        return undefined
    }
  }

  async #commitOf({ points, ranges, slot, operations }: ProgramStep & { do: 'commit' }): Promise<Commit> {
    const reader = this.#reader(slot)
    return {
      points: await Promise.all(
        points.map(async place => ({
          ...place,
          version: (await reader.get(place.scope, place.tag, place.key))?.version ?? 0,
        })),
      ),
      ranges: await Promise.all(
        ranges.map(async range => ({
          ...range,
          found: (await reader.scan(range)).map(({ key, version }) => ({ key, version })),
        })),
      ),
      operations,
    }
  }

  async #holdsLiving(scope: ByteString): Promise<boolean> {
    for (const tag of [...TREE_TAGS, ...LOG_TAGS]) {
      if ((await this.#storage.scan({ scope, tag, limit: 1 })).length > 0) return true
    }
    return false
  }

  #reader(slot: number): Reader {
    return this.#slots.get(slot) ?? this.#storage
  }

  #note(version: number, index: number): void {
    if (!this.#commits.has(version)) this.#commits.set(version, index)
  }

  #told(entry: Entry | undefined, tag: number): unknown {
    if (entry === undefined) return undefined
    const { key, value, expiresAt } = entry
    const step = this.#commits.get(entry.version)
    if (this.#hasClock) return [key, value, step, expiresAt, entry.time]
    // Without a common clock the two storages have different times, and therefore different hashes.
    const shown = isLogTag(tag) ? parseLogEntry(entry).body : isEngineTag(tag) ? fromU64(value) : value
    return [key, shown, step, expiresAt]
  }

  #toldAppended({ sequence, duplicate, memo, hash, time }: Appended): unknown {
    return this.#hasClock ? [sequence, duplicate, memo, hash, time] : [sequence, duplicate, memo]
  }
}
