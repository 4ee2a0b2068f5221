import type { PagedBytes } from './paged-bytes.ts'
import { cutFile, decisionsOf, type Fate, type FileChange, KEEP_ALL } from './power-cut.ts'

type Write = Extract<FileChange, { kind: 'write' }>

/**
 * A file of the simulated disk: what is durable, the changes since, and what
 * reads see. Normally the last is the first two together; after a failed sync
 * it may hold what is neither durable nor pending, and no later sync writes.
 */
export class SimulatedFile {
  readonly name: string
  readonly #sectorBytes: number
  /** The page cache. */
  content: PagedBytes
  /** Never changed in place, so that images share it. */
  #durable: PagedBytes
  #changes: FileChange[] = []
  /** How many changes went before the first one in `#changes`. */
  #changesBefore = 0
  /** Asked for by `writeLater` and not ended: may or may not be there. */
  #underWay: Write[] = []
  #diverged = false

  constructor(name: string, content: PagedBytes, sectorBytes: number) {
    this.name = name
    this.content = content
    this.#durable = content.fork()
    this.#sectorBytes = sectorBytes
  }

  /** How many changes there have been; a sync covers those up to such a number. */
  get changesMade(): number {
    return this.#changesBefore + this.#changes.length
  }

  get undecided(): number {
    return decisionsOf(this.#durable.size, [...this.#changes, ...this.#underWay], this.#sectorBytes)
  }

  write(bytes: Uint8Array, position: number): void {
    if (bytes.length === 0) return
    this.content.write(bytes, position)
    this.#changes.push({ kind: 'write', bytes: Uint8Array.from(bytes), position })
  }

  /** Returns what ends it. */
  beginWrite(bytes: Uint8Array, position: number): () => void {
    // Not a copy: bytes that change while they are being written are somebody's mistake, and should show.
    const change = { kind: 'write', bytes, position } as const
    this.#underWay.push(change)
    return () => {
      this.#underWay.splice(this.#underWay.indexOf(change), 1)
    }
  }

  truncate(size: number): void {
    this.content.truncate(size)
    this.#changes.push({ kind: 'truncate', size })
  }

  sync(upTo: number): void {
    if (upTo === this.changesMade && !this.#diverged) {
      if (this.#changes.length > 0) this.#durable = this.content.fork()
      this.#takeChanges(upTo)
    } else {
      this.#makeDurable(upTo, KEEP_ALL)
    }
  }

  /**
   * The kernel reports a failed sync once. Some of what it should have written
   * has arrived; it calls all of it clean, and keeps it in the cache or drops
   * it from there, as it likes.
   */
  failSync(upTo: number, fate: Fate, dropped: boolean): void {
    this.#makeDurable(upTo, fate)
    this.#diverged = !dropped
    if (!dropped) return
    this.content = this.#durable.fork()
    cutFile(this.content, this.#changes, KEEP_ALL, this.#sectorBytes)
  }

  /** Damages the device and the cache alike. */
  damage(change: (bytes: PagedBytes) => void): void {
    this.#durable = this.#durable.fork()
    change(this.#durable)
    change(this.content)
  }

  afterPowerCut(fate: Fate): SimulatedFile {
    const left = this.#durable.fork()
    const changes = this.#underWay.length > 0 ? [...this.#changes, ...this.#underWay] : this.#changes
    if (changes.length > 0) cutFile(left, changes, fate, this.#sectorBytes)
    return new SimulatedFile(this.name, left, this.#sectorBytes)
  }

  /** What is under way is written as far as `arrived` says, given its length. */
  afterProcessCrash(arrived: (bytes: number) => number): SimulatedFile {
    const copy = new SimulatedFile(this.name, this.content.fork(), this.#sectorBytes)
    copy.#durable = this.#durable
    copy.#changes = this.#changes.slice()
    copy.#diverged = this.#diverged
    for (const { bytes, position } of this.#underWay)
      copy.write(bytes.subarray(0, arrived(bytes.length)), position)
    return copy
  }

  #makeDurable(upTo: number, fate: Fate): void {
    this.#durable = this.#durable.fork()
    cutFile(this.#durable, this.#takeChanges(upTo), fate, this.#sectorBytes)
  }

  #takeChanges(upTo: number): FileChange[] {
    // None, if a sync that started later has ended before.
    const taken = this.#changes.splice(0, Math.max(0, upTo - this.#changesBefore))
    this.#changesBefore += taken.length
    return taken
  }
}
