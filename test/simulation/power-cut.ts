import type { Random } from '../../src/testing/random.ts'
import type { PagedBytes } from './paged-bytes.ts'

/**
 * The effect of a power cut on unsynced changes. A change of a file is pending until the file is synced, and a change
 * of the folder until the folder is synced. A `Fate` decides which parts of the pending changes survive.
 */
export type FileChange =
  | { readonly kind: 'write'; readonly bytes: Uint8Array; readonly position: number }
  | { readonly kind: 'truncate'; readonly size: number }

export interface FolderChange {
  readonly name: string
  /** The number of the file that now has this name; undefined if the name was removed. */
  readonly file: number | undefined
  /** The previous name, if the file was renamed. A rename is atomic. */
  readonly from?: string
}

export type Tear = 'none' | 'mixed' | 'garbage'

export interface Fate {
  /** Called before the changes of each list. */
  begin(changes: number): void
  /** The outcome for the part of a write that lies in one sector. */
  data(change: number, sector: number): 'lost' | 'kept' | 'torn'
  /** The content of a torn sector: these bytes at that offset, and the old bytes around them. */
  torn(part: Uint8Array): { readonly bytes: Uint8Array; readonly offset: number }
  /** Whether a truncation, or the new size after a write that extended the file, survives. */
  size(change: number): boolean
  entry(change: number): boolean
}

/**
 * Changes `content`, the durable bytes, to the bytes that a power cut leaves. Data and size survive independently, so a
 * longer file may contain zeros instead of lost data, and the old size may cut off data that survived.
 */
export function cutFile(
  content: PagedBytes,
  changes: readonly FileChange[],
  fate: Fate,
  sectorBytes: number,
): void {
  fate.begin(changes.length)
  // Data may be written past the end of the file. The final size decides whether it is visible.
  let size = content.size
  for (let index = 0; index < changes.length; index++) {
    const change = changes[index]
    if (change.kind === 'truncate') {
      if (!fate.size(index)) continue
      content.truncate(change.size)
      size = change.size
    } else {
      cutWrite(content, change.bytes, change.position, index, fate, sectorBytes)
      const end = change.position + change.bytes.length
      if (end > size && fate.size(index)) size = end
    }
  }
  content.truncate(size)
}

function cutWrite(
  content: PagedBytes,
  bytes: Uint8Array,
  position: number,
  index: number,
  fate: Fate,
  sectorBytes: number,
): void {
  let kept = 0
  let from = 0
  while (from < bytes.length) {
    const sector = Math.floor((position + from) / sectorBytes)
    const to = Math.min(bytes.length, (sector + 1) * sectorBytes - position)
    const outcome = fate.data(index, sector)
    if (outcome !== 'kept') {
      // Writes the kept sectors before this one in one call.
      content.write(bytes, position + kept, kept, from)
      kept = to
      if (outcome === 'torn') {
        const torn = fate.torn(bytes.subarray(from, to))
        content.write(torn.bytes, position + from + torn.offset)
      }
    }
    from = to
  }
  content.write(bytes, position + kept, kept, from)
}

/** The maximum number of decisions that `cutFile` asks for. */
export function decisionsOf(
  durableSize: number,
  changes: readonly FileChange[],
  sectorBytes: number,
): number {
  let decisions = 0
  let smallest = durableSize
  for (const change of changes) if (change.kind === 'truncate') smallest = Math.min(smallest, change.size)
  for (const change of changes) {
    if (change.kind === 'truncate') {
      decisions++
    } else {
      const end = change.position + change.bytes.length
      decisions += Math.ceil(end / sectorBytes) - Math.floor(change.position / sectorBytes)
      if (end > smallest) decisions++
    }
  }
  return decisions
}

export function cutFolder(
  names: ReadonlyMap<string, number>,
  changes: readonly FolderChange[],
  fate: Fate,
): ReadonlyMap<string, number> {
  if (changes.length === 0) return names
  fate.begin(changes.length)
  const left = new Map(names)
  for (let index = 0; index < changes.length; index++) {
    if (!fate.entry(index)) continue
    const { name, file, from } = changes[index]
    if (from !== undefined) left.delete(from)
    if (file === undefined) left.delete(name)
    else left.set(name, file)
  }
  return left
}

const KEEP_PROBABILITIES = [0, 0.1, 0.5, 0.9, 1] as const
const TEAR_PROBABILITY = 0.1

/**
 * Chooses one of two kinds of disk for each image, as the seed decides:
 *
 * - `ordered`: each sector has its content from some moment since the last sync, and sizes and names survive in
 *   order. A page cache on a journalled file system behaves like this.
 * - otherwise each sector of each write, each size and each name survives on its own, as on network file systems.
 *   This is worse than most disks.
 *
 * The share that survives also differs between images. Otherwise almost no image would keep nearly all or nearly
 * nothing.
 */
export class RandomFate implements Fate {
  readonly #random: Random
  readonly #tear: Tear
  readonly #ordered: boolean
  readonly #keep: number
  #changes = 0
  #salt = 0
  #metadataKept = 0

  constructor(random: Random, tear: Tear) {
    this.#random = random
    this.#tear = tear !== 'none' && random.chance(0.5) ? tear : 'none'
    this.#ordered = random.chance(0.5)
    this.#keep = random.pick(KEEP_PROBABILITIES)
  }

  begin(changes: number): void {
    this.#changes = changes
    if (!this.#ordered) return
    this.#salt = this.#random.below(0x1_0000_0000)
    this.#metadataKept = this.#moment(this.#random.next(), this.#random.next())
  }

  data(change: number, sector: number): 'lost' | 'kept' | 'torn' {
    if (this.#tear !== 'none' && this.#random.chance(TEAR_PROBABILITY)) return 'torn'
    const kept = this.#ordered ? change < this.#momentOf(sector) : this.#random.chance(this.#keep)
    return kept ? 'kept' : 'lost'
  }

  /**
   * The damage stays within the bytes of the write. An interrupted overwrite does not change the other bytes of its
   * sector, as all current disks promise.
   */
  torn(part: Uint8Array): { readonly bytes: Uint8Array; readonly offset: number } {
    if (this.#tear === 'garbage' && this.#random.chance(0.5)) {
      const bytes = new Uint8Array(part.length)
      for (let i = 0; i < bytes.length; i++) bytes[i] = this.#random.below(256)
      return { bytes, offset: 0 }
    }
    const cut = this.#random.below(part.length + 1)
    return this.#random.chance(0.5)
      ? { bytes: part.subarray(0, cut), offset: 0 }
      : { bytes: part.subarray(cut), offset: cut }
  }

  size(change: number): boolean {
    return this.#ordered ? change < this.#metadataKept : this.#random.chance(this.#keep)
  }

  entry(change: number): boolean {
    return this.size(change)
  }

  /** The moment for a sector. It is computed from the sector's number, so that it is the same each time without a table. */
  #momentOf(sector: number): number {
    const mixed = Math.imul((sector ^ this.#salt) + 0x9e3779b9, 0x85ebca6b)
    const first = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35)
    const second = Math.imul(first ^ (first >>> 16), 0x27d4eb2f)
    return this.#moment(
      ((first ^ (first >>> 15)) >>> 0) / 0x1_0000_0000,
      ((second ^ (second >>> 15)) >>> 0) / 0x1_0000_0000,
    )
  }

  /** Maps two numbers below 1 to the number of changes that had happened: all, none, or some. */
  #moment(first: number, second: number): number {
    if (first < this.#keep) return this.#changes
    return second < 0.3 ? 0 : Math.floor(((second - 0.3) / 0.7) * (this.#changes + 1))
  }
}

/** All changes survive. */
export const KEEP_ALL: Fate = {
  begin() {},
  data: () => 'kept',
  torn: part => ({ bytes: part, offset: 0 }),
  size: () => true,
  entry: () => true,
}

/** Tries all combinations of decisions, one per round, until `next` returns false. */
export class ExhaustiveFate implements Fate {
  readonly #path: boolean[] = []
  #depth = 0

  begin(): void {}

  data(): 'lost' | 'kept' {
    return this.#decide() ? 'kept' : 'lost'
  }

  torn(part: Uint8Array): { readonly bytes: Uint8Array; readonly offset: number } {
    return { bytes: part, offset: 0 }
  }

  size(): boolean {
    return this.#decide()
  }

  entry(): boolean {
    return this.#decide()
  }

  next(): boolean {
    this.#path.length = this.#depth
    this.#depth = 0
    while (this.#path.at(-1) === true) this.#path.pop()
    if (this.#path.length === 0) return false
    this.#path[this.#path.length - 1] = true
    return true
  }

  #decide(): boolean {
    if (this.#depth === this.#path.length) this.#path.push(false)
    return this.#path[this.#depth++]
  }
}
