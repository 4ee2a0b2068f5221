import { fromU64, u64 } from '../../src/core/bytes.ts'
import { linkHash, sha256, ZERO_HASH } from '../../src/core/hash.ts'
import {
  dedupeTag,
  HEAD_KEY,
  headTag,
  isEngineTag,
  isLogTag,
  logOfHeadTag,
  TAGS,
} from '../../src/engine/keys.ts'
import { parseHead, parseLogEntry } from '../../src/engine/log.ts'
import type {
  Append,
  Appended,
  Entry,
  Operation,
  Place,
  Reader,
  Storage,
  TreeId,
} from '../../src/engine/storage.ts'

/**
 * The expected content of a store after the first `count` commits of a history, and the comparison of a real store with
 * it. Every commit writes its own number under the marker key, so a store shows how many commits it holds.
 */

/**
 * The key under which every commit writes its number. It is in a tree of its own, so that every commit changes at least
 * two trees.
 */
export const MARKER: { readonly tag: number; readonly key: string } = { tag: TAGS.state, key: 'commit' }

interface Expected {
  readonly key: string
  /** The body of an event, the event number of a dedupe key, or the log length of a head. */
  readonly value: string
  readonly expiresAt: number
  /** The index of the commit that wrote the entry, from 0. */
  readonly by: number
}

type Trees = Map<string, Map<string, Expected>>

export interface Answer {
  readonly sequence: number
  readonly duplicate: boolean
}

/** The commits of a program in order. Each generation of a program has its own copy, which ends where that generation began. */
export class History {
  readonly trees: readonly TreeId[]
  /** `commits[i]` puts the marker `String(i)`, unless a refusal left a gap in the markers. */
  readonly commits: (readonly Operation[])[]
  /** The version of each commit; undefined if its caller got no answer. */
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

  /** The first `count` commits of this history. */
  upTo(count: number): History {
    return new History(this.trees, this.commits.slice(0, count), this.versions.slice(0, count))
  }

  /** The number of commits in a store with this marker; undefined if no commit wrote it. */
  countOf(marker: string | undefined): number | undefined {
    if (marker === undefined) return 0
    const direct = Number(marker)
    if (this.#markerOf(direct) === marker) return direct + 1
    const index = this.commits.findIndex((_, i) => this.#markerOf(i) === marker)
    return index < 0 ? undefined : index + 1
  }

  /** The marker of the next commit. */
  get nextMarker(): number {
    const count = this.commits.length
    return count === 0 ? 0 : Number(this.#markerOf(count - 1)) + 1
  }

  /** The expected answers to the appends of commit `index`. */
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

  /** The value of a key without expiry after all commits. */
  valueOf(tree: TreeId, key: string): string | undefined {
    if (this.commits.length > 0 && this.#headCount < this.commits.length)
      this.answers(this.commits.length - 1)
    return this.#head.get(idOf(tree))?.get(key)?.value
  }

  /** Compares a store with the first `count` commits. Returns the first difference, or undefined. */
  async difference(
    reader: Reader,
    count: number,
    now: number,
    chain: 'linked' | 'hashed' = 'linked',
  ): Promise<string | undefined> {
    const state = this.#stateAt(count)
    /** The hash of the last event of each log, by tree. */
    const ends = new Map<string, string>()
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
        const found = shown(tree, entry)
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
      const last = entries.at(-1)
      if (isLogTag(tree.tag)) ends.set(idOf(tree), last === undefined ? ZERO_HASH : parseLogEntry(last).hash)
      const log = logOfHeadTag(tree.tag)
      if (log === undefined) continue
      const end = ends.get(idOf({ scope: tree.scope, tag: log }))
      if (parseHead(last).hash !== end) return `${where}, the hash is not that of the last event`
    }
    return undefined
  }

  /** Like `difference` for one key, which is read with `get` instead of a scan. */
  async differenceAt(reader: Reader, count: number, now: number, place: Place): Promise<string | undefined> {
    const { scope, tag, key } = place
    const index = this.trees.findIndex(tree => idOf(tree) === idOf(place))
    const expected = this.#stateAt(count)[index].find(each => each.key === key)
    const isThere = expected !== undefined && (expected.expiresAt === 0 || expected.expiresAt > now)
    const entry = await reader.get(scope, tag, key)
    const found = entry && shown(place, entry)
    if (found === (isThere ? expected.value : undefined)) return undefined
    return `after ${count} commits, ${short(key)} of ${short(scope)}, looked up, is ${short(found)}`
  }

  /** Like `difference` for the list of scopes. A scope with only expired entries may be listed or not. */
  async differenceOfScopes(store: Storage, count: number, now: number): Promise<string | undefined> {
    const state = this.#stateAt(count)
    const found = await store.scopes({ limit: this.trees.length + 1 })
    if (found.some((scope, i) => i > 0 && found[i - 1] >= scope)) return 'scopes are not in order'
    const must = new Set<string>()
    const may = new Set<string>()
    for (const [index, { scope }] of this.trees.entries()) {
      for (const { expiresAt } of state[index]) {
        may.add(scope)
        if (expiresAt === 0 || expiresAt > now) must.add(scope)
      }
    }
    const missing = [...must].find(scope => !found.includes(scope))
    if (missing !== undefined) return `after ${count} commits, the scope ${short(missing)} is missing`
    const wrong = found.find(scope => !may.has(scope))
    if (wrong !== undefined) return `after ${count} commits, the scope ${short(wrong)} should not be there`
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
      if (operation.op === 'put') {
        const { key, value, expiresAt = 0 } = operation
        treeIn(trees, operation).set(key, { key, value, expiresAt, by })
      } else if (operation.op === 'delete') treeIn(trees, operation).delete(operation.key)
      else if (operation.op === 'drop') drop(trees, operation.scope)
      else answers.push(append(trees, operation, by))
    }
  }
}

function append(trees: Trees, { scope, tag, body, dedupe }: Append, by: number): Answer {
  const log = treeIn(trees, { scope, tag })
  const known = treeIn(trees, { scope, tag: dedupeTag(tag) })
  const before = dedupe === undefined ? undefined : known.get(dedupe.key)
  if (before !== undefined) return { sequence: Number(before.value), duplicate: true }
  const sequence = log.size
  const set = (tree: Map<string, Expected>, key: string, value: string): void =>
    void tree.set(key, { key, value, expiresAt: 0, by })
  set(log, u64(sequence), body)
  set(treeIn(trees, { scope, tag: headTag(tag) }), HEAD_KEY, String(sequence + 1))
  if (dedupe !== undefined) set(known, dedupe.key, String(sequence))
  return { sequence, duplicate: false }
}

function drop(trees: Trees, scope: string): void {
  for (const id of trees.keys()) if (id.slice(id.indexOf(' ') + 1) === scope) trees.delete(id)
}

/** Whether the answers to appends are the expected ones. */
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

function shown({ tag }: TreeId, entry: Entry): string {
  if (isLogTag(tag)) return parseLogEntry(entry).body
  return isEngineTag(tag) ? String(fromU64(entry.value)) : entry.value
}

/** Checks that each event names the hash of the event before it. With `hashed`, also recomputes each hash. */
function brokenLink(entries: readonly Entry[], chain: 'linked' | 'hashed'): string | undefined {
  let before = ZERO_HASH
  for (const [sequence, { prevHash, hash, time, body }] of entries.map(parseLogEntry).entries()) {
    if (prevHash !== before) return `event ${sequence} does not follow the one before it`
    if (chain === 'hashed' && hash !== linkHash(before, sequence, time, sha256(body))) {
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
