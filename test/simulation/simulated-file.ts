import type { PagedBytes } from './paged-bytes.ts'
import { cutFile, decisionsOf, type Fate, type FileChange, KEEP_ALL } from './power-cut.ts'

type Write = Extract<FileChange, { kind: 'write' }>

/**
 * A file of the simulated disk: its durable bytes, the pending changes, and the content that reads see. The content is
 * normally the durable bytes with the pending changes. After a failed sync it may also hold data that is neither
 * durable nor pending, and that no later sync writes.
 */
export class SimulatedFile {
  readonly name: string
  readonly #sectorBytes: number
  /** The page cache. */
  content: PagedBytes
  /** Replaced and never modified, so that images can share it. */
  #durable: PagedBytes
  #changes: FileChange[] = []
  /** The number of changes before the first one in `#changes`. */
  #changesBefore = 0
  /** Pending `writeLater` calls, whose data may or may not survive. */
  #underWay: Write[] = []
  #diverged = false

  constructor(name: string, content: PagedBytes, sectorBytes: number) {
    this.name = name
    this.content = content
    this.#durable = content.fork()
    this.#sectorBytes = sectorBytes
  }

  /** The number of changes so far. A sync covers the changes up to such a number. */
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

  /** Begins a `writeLater`. Returns a function that ends it. */
  beginWrite(bytes: Uint8Array, position: number): () => void {
    // The bytes are not copied. If a caller changes them during the write, that is a bug, and it should become visible.
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
   * Fails a sync as Linux does: the kernel reports it once, some of the data was written, and all of it counts as
   * clean. The cache keeps the unwritten data, or loses it if `dropped`.
   */
  failSync(upTo: number, fate: Fate, dropped: boolean): void {
    this.#makeDurable(upTo, fate)
    this.#diverged = !dropped
    if (!dropped) return
    this.content = this.#durable.fork()
    cutFile(this.content, this.#changes, KEEP_ALL, this.#sectorBytes)
  }

  /** Damages the device and the cache. */
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

  /** `arrived` returns how many bytes of each pending write survive, given its length. */
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
    // Takes none if a sync that started later has already ended.
    const taken = this.#changes.splice(0, Math.max(0, upTo - this.#changesBefore))
    this.#changesBefore += taken.length
    return taken
  }
}
