import type { ByteString } from '../core/bytes.ts'
import { sha256 } from '../core/hash.ts'
import { dedupeTag, feedTag, isDedupeTag, storageKey } from '../engine/keys.ts'
import type { Append, Commit, Delete, Operation, Place, Put, RangeRead, TreeId } from '../engine/storage.ts'
import {
  type Bounds,
  boundsOf,
  headOfKey,
  sequenceOfKey,
  type TreeAddress,
  tailOfKey,
  treeAddress,
} from './address.ts'
import { boolArray, byteaArray, int2Array, int4Array, int8Array } from './wire.ts'

/** The server takes one version number for each call and counts on from it. */
const TRANSACTIONS_MAX = 1_024
/** Beyond it the server would lock everything. */
const SCOPES_MAX = 256
const BYTES_MAX = 4 * 1024 * 1024

/** An operation with the transaction and the step that it belongs to. */
interface Placed<T> {
  readonly tx: number
  readonly step: number
  readonly tree: number
  readonly operation: T
}

interface PlacedAppend extends Placed<Append> {
  /** Among all appends of the batch. */
  readonly place: number
  /** The feed's tree. */
  readonly feed: number | undefined
}

/**
 * Commits that go to the server in one call. There, all reads are validated
 * first, then everything that is left takes effect at once. That is as if they
 * came one by one as long as none reads what one before it writes: such a
 * commit has to wait for the next call.
 */
export class Batch {
  readonly #scopes = new Map<ByteString, boolean>()
  readonly #trees = new Map<ByteString, number>()
  readonly #addresses: TreeAddress[] = []
  readonly #points: { tx: number; tree: number; place: Place; version: number }[] = []
  readonly #ranges: { tx: number; tree: number; range: RangeRead; bounds: Bounds }[] = []
  readonly #drops: { tx: number; step: number; scope: ByteString }[] = []
  readonly #puts: Placed<Put | Delete>[] = []
  readonly #appends: PlacedAppend[] = []
  /** What was written: keys of entries, whole trees, whole scopes. Known once somebody reads; mostly nobody does. */
  #written: Written | undefined
  #bytes = 0
  #steps = 1
  #appendCount = 0
  /** For each transaction, where its first append is among all. */
  readonly #firstAppends: number[] = []

  get size(): number {
    return this.#firstAppends.length
  }

  /** False, and nothing changed, if the commit has to wait for the next call. */
  add(commit: Commit): boolean {
    const bytes = bytesOf(commit)
    const scopes = scopesOf(commit)
    if (this.size > 0) {
      if (this.size === TRANSACTIONS_MAX || this.#bytes + bytes > BYTES_MAX) return false
      let added = 0
      for (const scope of scopes.keys()) if (!this.#scopes.has(scope)) added++
      if (this.#scopes.size + added > SCOPES_MAX || this.#readsWritten(commit)) return false
    }
    this.#bytes += bytes
    for (const [scope, isWritten] of scopes) {
      this.#scopes.set(scope, isWritten || this.#scopes.get(scope) === true)
    }
    this.#addCommit(commit)
    return true
  }

  /** The appends of a transaction, as places among the answers. */
  appendsOf(tx: number): number[] {
    const first = this.#firstAppends[tx]
    const end = this.#firstAppends[tx + 1] ?? this.#appendCount
    return Array.from({ length: end - first }, (_, i) => this.#order()[first + i])
  }

  /** What the append at this place among the answers brought. */
  memo(i: number): ByteString {
    return this.#sortedAppends()[i].operation.dedupe?.memo ?? ''
  }

  point(i: number): Place {
    return this.#points[i].place
  }

  range(i: number): TreeId {
    return this.#ranges[i].range
  }

  /** In the order of the statement. */
  parameters(nowMs: number | undefined): unknown[] {
    const appends = this.#sortedAppends()
    const written = this.#told()
    return [
      nowMs,
      this.#steps,
      byteaArray([...this.#scopes.keys()]),
      boolArray([...this.#scopes.values()]),
      byteaArray(this.#addresses.map(({ scope }) => scope)),
      int2Array(this.#addresses.map(({ tag }) => tag)),
      int2Array(this.#addresses.map(({ kind }) => kind)),
      ...this.#pointParameters(),
      ...this.#rangeParameters(),
      int4Array(this.#drops.map(({ tx }) => tx)),
      int4Array(this.#drops.map(({ step }) => step)),
      byteaArray(this.#drops.map(({ scope }) => scope)),
      ...this.#putParameters(),
      int4Array(appends.map(({ tx }) => tx)),
      int4Array(appends.map(({ step }) => step)),
      int4Array(appends.map(({ tree }) => tree)),
      int8Array(appends.map(({ operation }) => operation.time)),
      byteaArray(appends.map(({ operation }) => operation.bodyHash)),
      byteaArray(appends.map(({ operation }) => operation.body)),
      byteaArray(appends.map(({ operation: { dedupe } }) => dedupe && headOfKey(dedupe.key))),
      byteaArray(appends.map(({ operation: { dedupe } }) => (dedupe ? tailOfKey(dedupe.key) : ''))),
      byteaArray(appends.map(({ operation: { dedupe } }) => dedupe?.memo ?? '')),
      int4Array(twinsOf(appends)),
      int4Array(appends.map(({ feed }) => feed)),
      int4Array(appends.map(({ tx, place }) => place - this.#firstAppends[tx])),
      this.#steps === 1 && new Set(appends.map(({ tree }) => tree)).size === appends.length,
      int4Array([...new Set(appends.map(({ feed }) => feed))].filter(feed => feed !== undefined)),
      byteaArray(written.map(({ scope }) => scope)),
      int2Array(written.map(({ tag }) => tag)),
      byteaArray([...new Set(written.map(({ scope }) => tenantOf(scope)))]),
    ]
  }

  /** The append, if it is the only thing in here. */
  get onlyAppend(): Append | undefined {
    const isOnly =
      this.size === 1 &&
      this.#appends.length === 1 &&
      this.#puts.length + this.#drops.length + this.#points.length + this.#ranges.length === 0
    return isOnly ? this.#appends[0].operation : undefined
  }

  /** Trees that are to hear of it, if nothing conflicts; tag 0 is the whole scope. */
  #told(): TreeId[] {
    const trees = new Set([...this.#appends, ...this.#puts].map(({ tree }) => tree))
    for (const { feed } of this.#appends) if (feed !== undefined) trees.add(feed)
    const written: TreeId[] = [...trees].map(tree => this.#addresses[tree - 1])
    return [...written, ...this.#drops.map(({ scope }) => ({ scope, tag: 0 }))]
  }

  #addCommit({ points = [], ranges = [], operations }: Commit): void {
    const tx = this.size
    this.#firstAppends.push(this.#appendCount)
    for (const { version, ...place } of points) {
      this.#points.push({ tx, tree: this.#tree(place), place, version })
    }
    for (const range of ranges) {
      this.#ranges.push({ tx, tree: this.#tree(range), range, bounds: boundsOf(range) })
    }
    for (const operation of operations) {
      if (operation.op === 'drop') {
        this.#steps++
        this.#drops.push({ tx, step: this.#steps, scope: operation.scope })
        this.#written?.add(operation)
        continue
      }
      const placed = { tx, step: this.#steps, tree: this.#tree(operation) }
      if (operation.op === 'append') {
        const feed = operation.feed === undefined ? undefined : this.#tree(feedOf(operation, operation.feed))
        this.#appends.push({ ...placed, operation, feed, place: this.#appendCount++ })
      } else {
        this.#puts.push({ ...placed, operation })
      }
      this.#written?.add(operation)
    }
  }

  /** Counted from 1, as the server does. */
  #tree(tree: TreeId): number {
    const address = treeAddress(tree)
    const id = storageKey(address.scope, address.tag, String.fromCharCode(address.kind))
    let number = this.#trees.get(id)
    if (number === undefined) {
      number = this.#addresses.push(address)
      this.#trees.set(id, number)
    }
    return number
  }

  #readsWritten({ points = [], ranges = [] }: Commit): boolean {
    if (points.length + ranges.length === 0) return false
    if (this.#written === undefined) {
      this.#written = new Written()
      for (const { scope } of this.#drops) this.#written.add({ op: 'drop', scope })
      for (const { operation } of this.#puts) this.#written.add(operation)
      for (const { operation } of this.#appends) this.#written.add(operation)
    }
    const written = this.#written
    return points.some(point => written.hasPoint(point)) || ranges.some(range => written.hasTree(range))
  }

  #pointParameters(): unknown[] {
    const points = this.#points
    return [
      int4Array(points.map(({ tx }) => tx)),
      int4Array(points.map(({ tree }) => tree)),
      byteaArray(points.map(({ place }) => headOfKey(place.key))),
      byteaArray(points.map(({ place }) => tailOfKey(place.key))),
      int8Array(points.map(({ tree, place }) => sequenceOfKey(this.#addresses[tree - 1].kind, place.key))),
      int8Array(points.map(({ version }) => version)),
    ]
  }

  #rangeParameters(): unknown[] {
    const ranges = this.#ranges
    return [
      int4Array(ranges.map(({ tx }) => tx)),
      int4Array(ranges.map(({ tree }) => tree)),
      byteaArray(ranges.map(({ bounds }) => bounds.from)),
      byteaArray(ranges.map(({ bounds }) => bounds.fromTail)),
      byteaArray(ranges.map(({ bounds }) => bounds.to)),
      byteaArray(ranges.map(({ bounds }) => bounds.toTail)),
      int8Array(ranges.map(({ bounds }) => bounds.fromNumber.sequence)),
      int8Array(ranges.map(({ bounds }) => bounds.toNumber.sequence)),
      int4Array(ranges.map(({ bounds }) => bounds.fromNumber.count)),
      int4Array(ranges.map(({ bounds }) => bounds.toNumber.count)),
      boolArray(ranges.map(({ range }) => range.reverse ?? false)),
      int8Array(ranges.map(({ range }) => range.limit)),
      byteaArray(ranges.map(({ range }) => digestOf(range))),
    ]
  }

  #putParameters(): unknown[] {
    const puts = this.#puts
    return [
      int4Array(puts.map(({ tx }) => tx)),
      int4Array(puts.map(({ step }) => step)),
      int4Array(puts.map(({ tree }) => tree)),
      byteaArray(puts.map(({ operation }) => headOfKey(operation.key))),
      byteaArray(puts.map(({ operation }) => tailOfKey(operation.key))),
      byteaArray(puts.map(({ operation }) => (operation.op === 'put' ? operation.value : undefined))),
      int8Array(puts.map(({ operation }) => (operation.op === 'put' ? (operation.expiresAt ?? 0) : 0))),
    ]
  }

  #sorted: PlacedAppend[] | undefined
  #places: number[] | undefined

  /** Log by log: the server then needs to know one head at a time. */
  #sortedAppends(): readonly PlacedAppend[] {
    this.#sorted ??= [...this.#appends].sort(
      (a, b) => a.step - b.step || a.tree - b.tree || a.place - b.place,
    )
    return this.#sorted
  }

  /** Where each append is among the sorted ones. */
  #order(): readonly number[] {
    if (this.#places === undefined) {
      const places: number[] = []
      this.#sortedAppends().forEach((append, i) => {
        places[append.place] = i
      })
      this.#places = places
    }
    return this.#places
  }
}

/** What the commits of a batch write, to be asked whether somebody reads it. */
class Written {
  readonly #keys = new Set<ByteString>()
  readonly #trees = new Set<ByteString>()
  readonly #scopes = new Set<ByteString>()

  add(operation: Operation): void {
    if (operation.op === 'drop') {
      this.#scopes.add(operation.scope)
      return
    }
    this.#trees.add(treeKey(treeAddress(operation)))
    if (operation.op !== 'append') this.#keys.add(storageKey(operation.scope, operation.tag, operation.key))
    else {
      const { scope, tag, dedupe, feed } = operation
      if (dedupe !== undefined) this.#keys.add(storageKey(scope, dedupeTag(tag), dedupe.key))
      if (feed !== undefined) this.#trees.add(treeKey(feedOf(operation, feed)))
    }
  }

  hasPoint({ scope, tag, key }: Place): boolean {
    // A log is one thing with its head; a dedupe key is changed by an append with that key alone.
    const isOne = treeAddress({ scope, tag }).kind !== 0 && !isDedupeTag(tag)
    if (isOne) return this.hasTree({ scope, tag })
    return this.#scopes.has(scope) || this.#keys.has(storageKey(scope, tag, key))
  }

  hasTree(tree: TreeId): boolean {
    return this.#scopes.has(tree.scope) || this.#trees.has(treeKey(treeAddress(tree)))
  }
}

/** For each append the last one before it with the same dedupe key in the same log and step, counted from 1. */
function twinsOf(appends: readonly Placed<Append>[]): (number | undefined)[] {
  const seen = new Map<ByteString, number>()
  return appends.map(({ step, tree, operation }, i) => {
    if (operation.dedupe === undefined) return undefined
    const id = `${step} ${tree} ${operation.dedupe.key}`
    const twin = seen.get(id)
    seen.set(id, i + 1)
    return twin
  })
}

/** Of what a range found, as the server computes it of what it finds. */
function digestOf({ found }: RangeRead): ByteString {
  const buffer = Buffer.allocUnsafe(found.reduce((sum, { key }) => sum + 12 + key.length, 0))
  let at = 0
  for (const { key, version } of found) {
    at = buffer.writeBigInt64BE(BigInt(version), at)
    at = buffer.writeInt32BE(key.length, at)
    at += buffer.latin1Write(key, at, key.length)
  }
  return sha256(buffer.latin1Slice())
}

/** Scopes that a commit touches, and whether it writes there. */
function scopesOf({ points = [], ranges = [], operations }: Commit): Map<ByteString, boolean> {
  const scopes = new Map<ByteString, boolean>()
  for (const { scope } of points) scopes.set(scope, false)
  for (const { scope } of ranges) scopes.set(scope, false)
  for (const operation of operations) {
    scopes.set(operation.scope, true)
    if (operation.op === 'append' && operation.feed !== undefined) scopes.set(operation.feed, true)
  }
  return scopes
}

/** The tree in which an append is listed. */
export function feedOf({ tag }: Append, feed: ByteString): TreeId {
  return { scope: feed, tag: feedTag(tag) }
}

function bytesOf({ operations }: Commit): number {
  let bytes = 0
  for (const operation of operations) {
    if (operation.op === 'append') bytes += operation.body.length
    else if (operation.op === 'put') bytes += operation.value.length
  }
  return bytes
}

/** The first part of a scope, with the colon behind it; as the server finds it. */
function tenantOf(scope: ByteString): ByteString {
  return scope.slice(0, scope.indexOf(':') + 1)
}

function treeKey({ scope, tag }: TreeId): ByteString {
  return storageKey(scope, tag, '')
}
