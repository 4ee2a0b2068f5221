import { type ByteString, fromU64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { HEAD_KEY, headTag } from './keys.ts'
import { EMPTY_LOG, headAfter, headValue, type Linked, type LogHead, linkAppend, parseHead } from './log.ts'
import type { Append, Appended, Entry, Put, TreeId } from './storage.ts'

/**
 * What a transaction appends to one log. Nothing of it has a sequence or a
 * hash before the commit, so that appends never conflict; unless somebody
 * looks. Then the appends are linked to the log's head as the snapshot has it,
 * the head joins what the commit validates, and what was shown is what will be.
 */
export class OwnLog {
  /** Once it resolves, the log's head is known. */
  readonly ready: Promise<void>
  readonly #tree: TreeId
  readonly #onLook: (head: Entry | undefined) => void
  readonly #tickets: Ticket[] = []
  readonly #linked: Linked[] = []
  #headEntry: Entry | undefined
  #head: LogHead = EMPTY_LOG
  #looked = false

  constructor(
    tree: TreeId,
    head: Promise<Entry | undefined>,
    /** Refuses, if the transaction is over; else sees to it that the head is validated. */
    onLook: (head: Entry | undefined) => void,
  ) {
    this.#tree = tree
    this.#onLook = onLook
    this.ready = head.then(entry => {
      this.#headEntry = entry
      this.#head = parseHead(entry)
    })
    // Whoever needs it awaits it; nobody may be there if the storage is closed meanwhile.
    this.ready.catch(() => {})
  }

  add(append: Append, askedAt: number): Ticket {
    const ticket = new Ticket(this, this.#tickets.length, append, askedAt)
    this.#tickets.push(ticket)
    return ticket
  }

  /** Whether the appends have to come out as they were shown. */
  get isLinked(): boolean {
    return this.#looked
  }

  /** What the append at `index` will be. */
  look(index: number): Linked {
    this.#link()
    return this.#linked[index]
  }

  /** The appends as puts: what a read in the transaction finds. */
  entries(): readonly Put[] {
    this.#link()
    return this.#linked.map(linked => this.#put(linked))
  }

  entry(key: ByteString): Put | undefined {
    this.#link()
    // Sequences follow each other.
    const linked: Linked | undefined = this.#linked[fromU64(key) - this.#head.length]
    return linked?.key === key ? this.#put(linked) : undefined
  }

  headEntry(): Put {
    this.#link()
    const { scope, tag } = this.#tree
    return { op: 'put', scope, tag: headTag(tag), key: HEAD_KEY, value: headValue(this.#end()) }
  }

  #put({ key, value }: Linked): Put {
    const { scope, tag } = this.#tree
    return { op: 'put', scope, tag, key, value }
  }

  #end(): LogHead {
    const last = this.#linked.at(-1)
    return last === undefined ? this.#head : headAfter(last)
  }

  #link(): void {
    if (this.#tickets.some(({ append }) => append.dedupe !== undefined)) {
      // Whether it will append at all is the engine's to say, at commit.
      const message = 'an append with a dedupe key has no sequence before its commit'
      throw new AnnalsError('INVALID_OPERATION', message)
    }
    this.#onLook(this.#headEntry)
    this.#looked = true
    for (let i = this.#linked.length; i < this.#tickets.length; i++) {
      const { append, askedAt } = this.#tickets[i]
      this.#linked.push(linkAppend(this.#end(), append, askedAt))
    }
  }
}

/** What becomes of an append: as it was shown, or after the commit as it is. */
export class Ticket implements Appended {
  readonly append: Append
  /** When it was asked for. */
  readonly askedAt: number
  readonly #log: OwnLog
  readonly #index: number
  #settled: Appended | undefined

  constructor(log: OwnLog, index: number, append: Append, askedAt: number) {
    this.#log = log
    this.#index = index
    this.append = append
    this.askedAt = askedAt
  }

  get sequence(): number {
    return (this.#settled ?? this.#log.look(this.#index)).sequence
  }

  get hash(): ByteString {
    return (this.#settled ?? this.#log.look(this.#index)).hash
  }

  get time(): number {
    return (this.#settled ?? this.#log.look(this.#index)).time
  }

  get duplicate(): boolean {
    return this.#settled?.duplicate ?? false
  }

  get memo(): ByteString {
    return this.#settled?.memo ?? ''
  }

  /** Whether it was committed. */
  get isSettled(): boolean {
    return this.#settled !== undefined
  }

  /** For the commit. */
  operation(): Append {
    return this.#log.isLinked ? { ...this.append, time: this.askedAt } : this.append
  }

  settle(appended: Appended): void {
    this.#settled = appended
  }
}
