import { fromU64, u64 } from '../core/bytes.ts'
import { linkHash, sha256, ZERO_HASH } from '../core/hash.ts'
import { dedupeTag, isEngineTag, isLogTag, TAGS } from '../engine/keys.ts'
import type { Appended, Entry, Operation, Reader, TreeId } from '../engine/storage.ts'

/**
 * What a store must hold after the first `count` commits of a history, for any
 * count, and the comparison of a real one with it. Every commit of a history
 * puts its own number under one key: so a store itself says how many it holds.
 */

/** Where a commit says which it is: a tree of its own, so that a commit always spans at least two. */
export const MARKER: { readonly tag: number; readonly key: string } = { tag: TAGS.state, key: 'commit' }

interface Expected {
  readonly key: string
  /** Of an event its body, of a dedupe key the number of its event. */
  readonly value: string
  readonly expiresAt: number
  /** The commit that wrote it, counted from 0. */
  readonly by: number
}

type Trees = Map<string, Map<string, Expected>>

export interface Answer {
  readonly sequence: number
  readonly duplicate: boolean
}

const HASH_BYTES = 32

/** Commits in order; shared by the generations that come of one program, each with its own end. */
export class History {
  readonly trees: readonly TreeId[]
  /** `commits[i]` puts the marker `String(i)`, unless a refusal left a gap in the markers. */
  readonly commits: (readonly Operation[])[]
  /** Of each commit, as far as somebody heard of it. */
  readonly versions: (number | undefined)[]
  readonly #states = new Map<number, readonly (readonly Expected[])[]>()
  /** The trees after the first `#headCount` commits. */
  #head: Trees = new Map()
  #headCount = 0

  constructor(
    trees: readonly TreeId[],
    commits: readonly (readonly Operation[])[] = [],
    versions: readonly (number | undefined)[] = [],
  ) {
    this.trees = trees
    this.commits = [...commits]
    this.versions = [...versions]
  }

  get markerScope(): string {
    return this.trees[0].scope
  }

  /** The history of a store that holds this many commits. */
  upTo(count: number): History {
    return new History(this.trees, this.commits.slice(0, count), this.versions.slice(0, count))
  }

  /** How many commits a store holds whose marker is this. */
  countOf(marker: string | undefined): number | undefined {
    if (marker === undefined) return 0
    const direct = Number(marker)
    if (this.#markerOf(direct) === marker) return direct + 1
    const index = this.commits.findIndex((_, i) => this.#markerOf(i) === marker)
    return index < 0 ? undefined : index + 1
  }

  /** What the next commit puts as its marker. */
  get nextMarker(): number {
    const count = this.commits.length
    return count === 0 ? 0 : Number(this.#markerOf(count - 1)) + 1
  }

  /** What the appends of commit `index` must be answered with. */
  answers(index: number): Answer[] {
    const answers: Answer[] = []
    if (index < this.#headCount) {
      this.#head = new Map()
      this.#headCount = 0
    }
    for (; this.#headCount < index; this.#headCount++) this.#apply(this.#head, this.#headCount, [])
    this.#apply(this.#head, index, answers)
    this.#headCount = index + 1
    return answers
  }

  /** The value that a key without expiry has after all commits but the last `open` ones. */
  valueOf(tree: TreeId, key: string): string | undefined {
    if (this.commits.length > 0 && this.#headCount < this.commits.length)
      this.answers(this.commits.length - 1)
    return this.#head.get(idOf(tree))?.get(key)?.value
  }

  /** What is wrong with a store that should hold the first `count` commits; undefined if nothing is. */
  async difference(
    reader: Reader,
    count: number,
    now: number,
    chain: 'linked' | 'hashed' = 'linked',
  ): Promise<string | undefined> {
    const state = this.#stateAt(count)
    for (const [index, tree] of this.trees.entries()) {
      const entries = await reader.scan(tree)
      const where = `after ${count} commits, in the tree ${tree.tag} of ${short(tree.scope)}`
      let at = 0
      for (const expected of state[index]) {
        if (expected.expiresAt !== 0 && expected.expiresAt <= now) continue
        const entry = entries[at++]
        if (entry?.key !== expected.key) {
          return `${where}, ${short(expected.key)} is missing (there is ${short(entry?.key)})`
        }
        const found = isLogTag(tree.tag) ? entry.value.slice(2 * HASH_BYTES) : shown(tree, entry)
        if (found !== expected.value) {
          return `${where}, ${short(entry.key)} is ${short(found)}, not ${short(expected.value)}`
        }
        const version = this.versions[expected.by]
        if (version !== undefined && entry.version !== version) {
          return `${where}, ${short(entry.key)} is of version ${entry.version}, not ${version}`
        }
      }
      if (at < entries.length) return `${where}, ${short(entries[at].key)} should not be there`
      const broken = isLogTag(tree.tag) ? brokenLink(entries, chain) : undefined
      if (broken !== undefined) return `${where}, ${broken}`
    }
    return undefined
  }

  #markerOf(index: number): string | undefined {
    const last = this.commits[index]?.at(-1)
    return last?.op === 'put' ? last.value : undefined
  }

  #stateAt(count: number): readonly (readonly Expected[])[] {
    let state = this.#states.get(count)
    if (state === undefined) {
      const trees: Trees = new Map()
      for (let index = 0; index < count; index++) this.#apply(trees, index, [])
      state = this.trees.map(tree =>
        [...(trees.get(idOf(tree))?.values() ?? [])].sort((a, b) => (a.key < b.key ? -1 : 1)),
      )
      this.#states.set(count, state)
    }
    return state
  }

  #apply(trees: Trees, by: number, answers: Answer[]): void {
    for (const operation of this.commits[by]) {
      const tree = treeIn(trees, operation)
      if (operation.op === 'put') {
        const { key, value, expiresAt = 0 } = operation
        tree.set(key, { key, value, expiresAt, by })
      } else if (operation.op === 'delete') tree.delete(operation.key)
      else {
        const { scope, tag, body, dedupe } = operation
        const known = treeIn(trees, { scope, tag: dedupeTag(tag) })
        const before = dedupe === undefined ? undefined : known.get(dedupe.key)
        const sequence = before === undefined ? tree.size : Number(before.value)
        answers.push({ sequence, duplicate: before !== undefined })
        if (before !== undefined) continue
        const key = u64(sequence)
        tree.set(key, { key, value: body, expiresAt: 0, by })
        if (dedupe !== undefined) {
          known.set(dedupe.key, { key: dedupe.key, value: String(sequence), expiresAt: 0, by })
        }
      }
    }
  }
}

/** Whether appends were answered as they must be. */
export function sameAnswers(found: readonly Appended[], expected: readonly Answer[]): boolean {
  return (
    found.length === expected.length &&
    found.every(
      ({ sequence, duplicate }, i) =>
        sequence === expected[i].sequence && duplicate === expected[i].duplicate,
    )
  )
}

function idOf({ scope, tag }: TreeId): string {
  return `${tag} ${scope}`
}

function treeIn(trees: Trees, tree: TreeId): Map<string, Expected> {
  const id = idOf(tree)
  let known = trees.get(id)
  if (known === undefined) {
    known = new Map()
    trees.set(id, known)
  }
  return known
}

function shown({ tag }: TreeId, { value }: Entry): string {
  return isEngineTag(tag) ? String(fromU64(value)) : value
}

/** Each event names the hash of the one before; with `hashed`, that hash is recomputed as well. */
function brokenLink(entries: readonly Entry[], chain: 'linked' | 'hashed'): string | undefined {
  let before = ZERO_HASH
  for (const [sequence, { value, time }] of entries.entries()) {
    if (!value.startsWith(before)) return `event ${sequence} does not follow the one before it`
    const hash = value.slice(HASH_BYTES, 2 * HASH_BYTES)
    if (
      chain === 'hashed' &&
      hash !== linkHash(before, sequence, time, sha256(value.slice(2 * HASH_BYTES)))
    ) {
      return `event ${sequence} has a wrong hash`
    }
    before = hash
  }
  return undefined
}

function short(text: string | undefined): string {
  if (text === undefined) return 'nothing'
  return text.length <= 60 ? JSON.stringify(text) : `${JSON.stringify(text.slice(0, 20))}…${text.slice(-20)}`
}
