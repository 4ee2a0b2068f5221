import { type ByteString, fromU64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { dedupeTag, HEAD_KEY, headTag } from './keys.ts'
import {
  dedupeValue,
  EMPTY_LOG,
  headAfter,
  headValue,
  type Linked,
  type LogHead,
  linkAppend,
  parseHead,
} from './log.ts'
import type { Append, Appended, Entry, Put, TreeId } from './storage.ts'

/**
 * A transaction's appends to one log. The engine links them at commit, so they
 * never conflict. If the caller uses a sequence or hash before the commit, the
 * appends are linked to the snapshot's head of the log. The head then becomes a
 * read that the commit validates, so the commit stores exactly the same entries.
 */
export class OwnLog {
  /** Resolves once the log's head has been read. */
  readonly ready: Promise<void>
  readonly #tree: TreeId
  readonly #onLook: (head: Entry | undefined) => void
  readonly #isNew: (dedupeKey: ByteString) => boolean
  readonly #tickets: Ticket[] = []
  readonly #linked: Linked[] = []
  #headEntry: Entry | undefined
  #head: LogHead = EMPTY_LOG
  #looked = false

  constructor(
    tree: TreeId,
    head: Promise<Entry | undefined>,
    /** Called when the head is used. Throws if the transaction is over, and otherwise records the head as a read. */
    onLook: (head: Entry | undefined) => void,
    /** Whether the transaction has looked the dedupe key up and found nothing, which the commit validates. */
    isNew: (dedupeKey: ByteString) => boolean,
  ) {
    this.#tree = tree
    this.#onLook = onLook
    this.#isNew = isNew
    this.ready = head.then(entry => {
      this.#headEntry = entry
      this.#head = parseHead(entry)
    })
    // Callers await `ready`. If the storage is closed and there is none, the rejection would be unhandled.
    this.ready.catch(() => {})
  }

  /** Adds an append. `askedAt` is its time if it is linked before the commit. */
  add(append: Append, askedAt: number): Ticket {
    const ticket = new Ticket(this, this.#tickets.length, append, askedAt)
    this.#tickets.push(ticket)
    return ticket
  }

  /** Whether the appends were linked before the commit, which must then store the same entries. */
  get isLinked(): boolean {
    return this.#looked
  }

  /** The linked append at `index`. */
  look(index: number): Linked {
    this.#link()
    return this.#linked[index]
  }

  /** The append at `index` as `look` would link it now. It is no read: another append may still move it at the commit. */
  peek(index: number): Linked {
    this.#extend()
    return this.#linked[index]
  }

  /** The appends as puts, which reads in the transaction merge into the snapshot. */
  entries(): readonly Put[] {
    this.#link()
    return this.#linked.map(linked => this.#put(linked))
  }

  /** The append with this key as a put; undefined if there is none. */
  entry(key: ByteString): Put | undefined {
    this.#link()
    // Sequences are consecutive, so the key gives the index.
    const linked: Linked | undefined = this.#linked[fromU64(key) - this.#head.length]
    return linked?.key === key ? this.#put(linked) : undefined
  }

  /** The log's head after the appends, as a put. */
  headEntry(): Put {
    this.#link()
    const { scope, tag } = this.#tree
    return { op: 'put', scope, tag: headTag(tag), key: HEAD_KEY, value: headValue(this.#end()) }
  }

  /** The entry of an append's dedupe key, as a put; undefined if no append of the transaction has the key. */
  dedupeEntry(key: ByteString): Put | undefined {
    const index = this.#tickets.findIndex(({ append }) => append.dedupe?.key === key)
    if (index < 0) return undefined
    const { scope, tag } = this.#tree
    const memo = this.#tickets[index].append.dedupe?.memo ?? ''
    return { op: 'put', scope, tag: dedupeTag(tag), key, value: dedupeValue(this.look(index), memo) }
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
    this.#extend()
    this.#onLook(this.#headEntry)
    this.#looked = true
  }

  /** Links the appends that are not linked yet. */
  #extend(): void {
    if (this.#tickets.some(({ append: { dedupe } }) => dedupe !== undefined && !this.#isNew(dedupe.key))) {
      // The engine decides at commit whether the append is a duplicate.
      const message = 'an append with a dedupe key has no sequence before its commit'
      throw new AnnalsError('INVALID_OPERATION', message)
    }
    for (let i = this.#linked.length; i < this.#tickets.length; i++) {
      const { append, askedAt } = this.#tickets[i]
      this.#linked.push(linkAppend(this.#end(), append, askedAt))
    }
  }
}

/** The result of an append in a transaction. Reading it before the commit links the append. */
export class Ticket implements Appended {
  readonly append: Append
  /** When the caller made the append. */
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

  /** The sequence and hash that the append has if nothing else is appended before the commit. Does not count as a read. */
  peek(): Pick<Appended, 'sequence' | 'hash'> {
    return this.#settled ?? this.#log.peek(this.#index)
  }

  get duplicate(): boolean {
    return this.#settled?.duplicate ?? false
  }

  get memo(): ByteString {
    return this.#settled?.memo ?? ''
  }

  /** Whether the append was committed. */
  get isSettled(): boolean {
    return this.#settled !== undefined
  }

  /** The operation to commit. A linked append keeps the time that its hash covers. */
  operation(): Append {
    return this.#log.isLinked ? { ...this.append, time: this.askedAt } : this.append
  }

  /** Stores the result of the commit. */
  settle(appended: Appended): void {
    this.#settled = appended
  }
}
