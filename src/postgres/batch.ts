import type { ByteString } from '../core/bytes.ts'
import { feedTag, isEngineTag, isLogTag } from '../engine/keys.ts'
import { commitTime } from '../engine/log.ts'
import type { Append, Commit, Delete, Operation, Put, TreeId } from '../engine/storage.ts'
import { boundsOf, checkScope, type TreeAddress, treeAddress } from './address.ts'
import {
  appendParameters,
  type Placed,
  type PlacedAppend,
  type PlacedRange,
  type PointRead,
  pointParameters,
  putParameters,
  rangeParameters,
  twinsOf,
} from './batch-parameters.ts'
import { boolArray, byteaArray, int2Array, int4Array } from './wire.ts'
import { Written } from './written.ts'

/** The server takes one version number for each call and counts on from it. */
const TRANSACTIONS_MAX = 1_024
/** A call holds the locks of all its scopes: the more it has, the more others wait for it. */
const SCOPES_MAX = 256
const BYTES_MAX = 4 * 1024 * 1024

/** What a test says instead of the server: its clock, and a time that no commit is before. */
export interface GivenTimes {
  readonly clockMs?: number
  readonly notBeforeMs?: number
}

interface TouchedScope {
  isWritten: boolean
  /** Two or three, mostly. */
  readonly trees: TouchedTree[]
}

interface TouchedTree {
  readonly tag: number
  /** Counted from 1, as the server does. */
  readonly number: number
  /** By key, what was found there first; most trees are only written. */
  points: Map<ByteString, PointRead> | undefined
}

/**
 * Commits that go to the server in one call. There, all reads are validated
 * first, then everything that is left takes effect at once. That is as if they
 * came one by one as long as none reads what one before it writes: such a
 * commit has to wait for the next call.
 */
export class Batch {
  readonly #scopes = new Map<ByteString, TouchedScope>()
  readonly #addresses: TreeAddress[] = []
  /** As they were asked for; the server says where they are in its own way. */
  readonly #trees: TreeId[] = []
  readonly #points: PointRead[] = []
  readonly #ranges: PlacedRange[] = []
  readonly #drops: { tx: number; step: number; scope: ByteString }[] = []
  readonly #puts: Placed<Put | Delete>[] = []
  readonly #appends: PlacedAppend[] = []
  /** Known once somebody reads; mostly nobody does. */
  #written: Written | undefined
  #bytes = 0
  #steps = 1
  /** For each transaction, where its first append is among all. */
  readonly #firstAppends: number[] = []

  get size(): number {
    return this.#firstAppends.length
  }

  /** False, and nothing changed, if the commit has to wait for the next call. */
  add(commit: Commit): boolean {
    const bytes = bytesOf(commit)
    const scopes = this.#newScopesMax(commit)
    if (this.size > 0) {
      if (this.size === TRANSACTIONS_MAX || this.#bytes + bytes > BYTES_MAX) return false
      if (this.#scopes.size + scopes > SCOPES_MAX || this.#readsWritten(commit)) return false
    }
    this.#bytes += bytes
    this.#addCommit(commit)
    return true
  }

  /** Of answers to all appends, transaction by transaction, those to one transaction. */
  ofTransaction<T>(tx: number, answers: readonly T[]): readonly T[] {
    return answers.slice(this.#firstAppends[tx], this.#firstAppends[tx + 1])
  }

  /** For each append, in the order in which they are sent: its place among all, transaction by transaction, and what it brought. */
  get sent(): readonly PlacedAppend[] {
    return this.#sortedAppends()
  }

  /** Where the point that the server counts as this one lies. */
  point(number: number): TreeId & { readonly key: ByteString } {
    const { tree, key } = this.#points[number - 1]
    return { ...this.#trees[tree - 1], key }
  }

  range(number: number): TreeId {
    const { scope, tag } = this.#ranges[number - 1].range
    return { scope, tag }
  }

  /** In the order of the statement. Without a `turn` the batch is not bound to what its session sent before. */
  parameters({ clockMs, notBeforeMs }: GivenTimes, areNew: boolean, turn?: number): unknown[] {
    const appends = this.#sortedAppends()
    const twins = twinsOf(appends)
    const firsts = firstsOf(appends)
    const told = this.#told()
    return [
      clockMs,
      this.#steps,
      byteaArray([...this.#scopes.keys()]),
      boolArray([...this.#scopes.values()].map(({ isWritten }) => isWritten)),
      byteaArray(this.#addresses.map(({ scope }) => scope)),
      int2Array(this.#addresses.map(({ tag }) => tag)),
      int2Array(this.#addresses.map(({ kind }) => kind)),
      ...pointParameters(this.#points, this.#addresses),
      ...rangeParameters(this.#ranges),
      int4Array(this.#drops.map(({ tx }) => tx)),
      int4Array(this.#drops.map(({ step }) => step)),
      byteaArray(this.#drops.map(({ scope }) => scope)),
      ...putParameters(this.#puts),
      ...appendParameters(appends, twins),
      areNew && this.#steps === 1 && twins.every(twin => twin === undefined),
      int4Array([...new Set(appends.map(({ feed }) => feed))].filter(feed => feed !== undefined)),
      int4Array(firsts.map(first => appends[first].tree)),
      int4Array(firsts.map(first => first + 1)),
      byteaArray(told.map(({ scope }) => scope)),
      int2Array(told.map(({ tag }) => tag)),
      byteaArray([...new Set(told.map(({ scope }) => tenantOf(scope)))]),
      commitTime(operationsOf(this.#puts), commitTime(operationsOf(appends), notBeforeMs ?? 0)),
      turn,
    ]
  }

  /** Trees that are to hear of it, if nothing conflicts; tag 0 is the whole scope. */
  #told(): TreeId[] {
    const trees = new Set<number>()
    for (const { tree, feed } of this.#appends) {
      trees.add(tree)
      if (feed !== undefined) trees.add(feed)
    }
    for (const { tree } of this.#puts) trees.add(tree)
    const told: TreeId[] = [...trees].map(tree => this.#addresses[tree - 1])
    return [...told, ...this.#drops.map(({ scope }) => ({ scope, tag: 0 }))]
  }

  #addCommit({ points = [], ranges = [], operations }: Commit): void {
    const tx = this.size
    const first = this.#appends.length
    this.#firstAppends.push(first)
    for (const { scope, tag, key, version } of points) {
      this.#read(tx, this.#tree(this.#touched(scope), { scope, tag }), key, version)
    }
    for (const range of ranges) {
      const { number } = this.#tree(this.#touched(range.scope), range)
      this.#ranges.push({ tx, tree: number, range, bounds: boundsOf(range) })
    }
    for (const operation of operations) {
      this.#addOperation(tx, operation, this.#appends.length - first)
      this.#written?.add(operation)
    }
  }

  #addOperation(tx: number, operation: Operation, count: number): void {
    const touched = this.#touched(operation.scope, true)
    if (operation.op === 'drop') {
      this.#steps++
      this.#drops.push({ tx, step: this.#steps, scope: operation.scope })
      return
    }
    const step = this.#steps
    const tree = this.#tree(touched, operation).number
    if (operation.op !== 'append') {
      this.#puts.push({ tx, step, tree, operation })
      return
    }
    const listing = operation.feed === undefined ? undefined : feedOf(operation, operation.feed)
    const feed = listing && this.#tree(this.#touched(listing.scope, true), listing).number
    this.#appends.push({ tx, step, tree, operation, feed, count, place: this.#appends.length })
  }

  #read(tx: number, tree: TouchedTree, key: ByteString, version: number): void {
    tree.points ??= new Map()
    const known = tree.points.get(key)
    if (known?.version === version) {
      known.txs.push(tx)
      return
    }
    const point = { tree: tree.number, key, version, txs: [tx] }
    if (known === undefined) tree.points.set(key, point)
    this.#points.push(point)
  }

  #touched(scope: ByteString, isWritten = false): TouchedScope {
    let touched = this.#scopes.get(scope)
    if (touched === undefined) {
      touched = { isWritten, trees: [] }
      this.#scopes.set(scope, touched)
    } else if (isWritten) touched.isWritten = true
    return touched
  }

  #tree(touched: TouchedScope, { scope, tag }: TreeId): TouchedTree {
    const known = touched.trees.find(tree => tree.tag === tag)
    if (known !== undefined) return known
    const tree = { tag, number: this.#addresses.push(treeAddress({ scope, tag })), points: undefined }
    this.#trees.push({ scope, tag })
    touched.trees.push(tree)
    return tree
  }

  /** How many scopes it would bring at most. Throws if one of them can't be: before anything is changed. */
  #newScopesMax({ points = [], ranges = [], operations }: Commit): number {
    let added = 0
    let last: ByteString | undefined
    const look = (scope: ByteString): void => {
      // Most of a commit is about one scope.
      if (scope === last || this.#scopes.has(scope)) return
      last = scope
      checkScope(scope)
      added++
    }
    for (const { scope } of points) look(scope)
    for (const { scope } of ranges) look(scope)
    for (const operation of operations) {
      look(operation.scope)
      if (operation.op === 'append' && operation.feed !== undefined) look(operation.feed)
    }
    return added
  }

  #readsWritten({ points = [], ranges = [] }: Commit): boolean {
    if (points.length + ranges.length === 0) return false
    // Appends alone change no entry.
    const isAppending = this.#puts.length + this.#drops.length === 0
    if (isAppending && ranges.length === 0 && points.every(({ tag }) => isEntryTag(tag))) return false
    if (this.#written === undefined) {
      this.#written = new Written()
      for (const { scope } of this.#drops) this.#written.add({ op: 'drop', scope })
      for (const { operation } of this.#puts) this.#written.add(operation)
      for (const { operation } of this.#appends) this.#written.add(operation)
    }
    const written = this.#written
    return points.some(point => written.hasPoint(point)) || ranges.some(range => written.hasTree(range))
  }

  #sorted: PlacedAppend[] | undefined

  /** Log by log: the server then needs to know one head at a time. */
  #sortedAppends(): readonly PlacedAppend[] {
    this.#sorted ??= [...this.#appends].sort(
      (a, b) => a.step - b.step || a.tree - b.tree || a.place - b.place,
    )
    return this.#sorted
  }
}

/** Which append is the first of its log, of appends that come log by log. */
function firstsOf(appends: readonly PlacedAppend[]): number[] {
  const firsts: number[] = []
  appends.forEach(({ tree }, i) => {
    if (tree !== appends[i - 1]?.tree) firsts.push(i)
  })
  return firsts
}

/** The tree in which an append is listed. */
export function feedOf({ tag }: Append, feed: ByteString): TreeId {
  return { scope: feed, tag: feedTag(tag) }
}

/** A tree of entries, which no append changes. */
export function isEntryTag(tag: number): boolean {
  return !isLogTag(tag) && !isEngineTag(tag)
}

function operationsOf<T>(placed: readonly Placed<T>[]): readonly T[] {
  return placed.map(({ operation }) => operation)
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
export function tenantOf(scope: ByteString): ByteString {
  return scope.slice(0, scope.indexOf(':') + 1)
}
