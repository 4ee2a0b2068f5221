import { readFileSync } from 'node:fs'
import { u64 } from '../../src/core/bytes.ts'
import { linkHash, sha256, ZERO_HASH } from '../../src/core/hash.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { dedupeTag, HEAD_KEY, headTag, TAGS } from '../../src/engine/keys.ts'
import { parseDedupe, parseHead, parseLogEntry } from '../../src/engine/log.ts'
import type { Appended, Operation } from '../../src/engine/storage.ts'

/**
 * Tracks the requests of killed writers and the answers that they received, and derives the expected content of the
 * store: the commits of each writer in order, without a gap, and at least up to the last answer.
 */

export type Reported =
  | { readonly kind: 'opened'; readonly version: number }
  | { readonly kind: 'asked'; readonly id: string; readonly operations: readonly Operation[] }
  | {
      readonly kind: 'answered'
      readonly id: string
      readonly version: number
      readonly time: number
      readonly appended: readonly Appended[]
    }
  | { readonly kind: 'closed' }

/** The report that a writer wrote before it was killed. The last line may be incomplete. */
export function readReport(path: string): Reported[] {
  const lines = readFileSync(path, 'utf8').split('\n')
  lines.pop()
  return lines.map(line => JSON.parse(line) as Reported)
}

interface Event {
  readonly body: string
  readonly dedupe: string
  readonly memo: string
}

interface ScopeState {
  readonly cells: Map<string, string>
  readonly events: Event[]
  readonly known: Map<string, number>
}

/** The answers to appends by scope and sequence. They must never change. */
type Answers = Map<string, { readonly hash: string; readonly time: number; readonly memo: string }>

export class KillOracle {
  /** The last version that is known to be stored. */
  version = 0
  commits = 0
  answered = 0
  duplicates = 0
  drops = 0
  readonly #scopes = new Map<string, ScopeState>()
  readonly #answers: Answers = new Map()
  #time = 0

  /** Processes the report of a writer, given the version that was found after it was killed. */
  takeIn(reported: readonly Reported[], found: number): void {
    const opened = reported.find(each => each.kind === 'opened')
    if (opened === undefined) {
      assertEqual(found, this.version, 'who never opened changed something')
      return
    }
    assertEqual(opened.version, this.version, 'the writer opened another version than was found before')
    const asked = reported.filter(each => each.kind === 'asked')
    const answered = reported.filter(each => each.kind === 'answered')
    if (found > this.version + asked.length) throw new Error('there are commits that nobody asked for')
    const places = new Map(asked.map(({ id }, index) => [id, this.version + index + 1]))
    for (const { id, version } of answered) {
      assertEqual(version, places.get(id), `commit ${id} has another place than it was asked in`)
      if (version > found)
        throw new Error(`lost: commit ${id}, answered as version ${version}, found ${found}`)
    }
    const answers = new Map(answered.map(answer => [answer.version, answer]))
    for (const { operations } of asked.slice(0, found - this.version)) {
      this.version++
      this.#apply(operations, answers.get(this.version))
    }
    this.answered += answered.length
  }

  #apply(operations: readonly Operation[], answer: (Reported & { kind: 'answered' }) | undefined): void {
    this.commits++
    if (answer !== undefined) {
      if (answer.time < this.#time) throw new Error('time went back')
      this.#time = answer.time
    }
    let appends = 0
    for (const operation of operations) {
      const state = this.#scope(operation.scope)
      if (operation.op === 'drop') this.#drop(operation.scope)
      else if (operation.op === 'put') state.cells.set(operation.key, operation.value)
      else if (operation.op === 'delete') state.cells.delete(operation.key)
      else this.#append(state, operation, answer?.appended[appends++])
    }
  }

  /** The scope's log starts again, so earlier answers do not apply to it. */
  #drop(scope: string): void {
    this.drops++
    const { cells, events, known } = this.#scope(scope)
    cells.clear()
    known.clear()
    events.length = 0
    for (const id of this.#answers.keys()) if (id.startsWith(`${scope} `)) this.#answers.delete(id)
  }

  #append(
    { events, known }: ScopeState,
    { scope, body, dedupe }: Operation & { op: 'append' },
    answer: Appended | undefined,
  ): void {
    const { key, memo = '' } = dedupe as { key: string; memo?: string }
    const first = known.get(key)
    if (first === undefined) {
      known.set(key, events.length)
      events.push({ body, dedupe: key, memo })
    }
    if (answer === undefined) return
    const sequence = first ?? events.length - 1
    assertEqual(answer.duplicate, first !== undefined, `whether ${key} is a duplicate`)
    assertEqual(answer.sequence, sequence, `the sequence of ${key}`)
    assertEqual(answer.memo, events[sequence].memo, `the memo of ${key}`)
    if (answer.duplicate) this.duplicates++
    const before = this.#answers.get(`${scope} ${sequence}`)
    if (before !== undefined) {
      assertEqual(answer.hash, before.hash, `the hash answered for ${key}`)
      assertEqual(answer.time, before.time, `the time answered for ${key}`)
    }
    this.#answers.set(`${scope} ${sequence}`, answer)
  }

  #scope(scope: string): ScopeState {
    const known = this.#scopes.get(scope)
    if (known !== undefined) return known
    const made: ScopeState = { cells: new Map(), events: [], known: new Map() }
    this.#scopes.set(scope, made)
    return made
  }

  /** Compares all data of the store. */
  async check(store: EmbeddedStore): Promise<void> {
    assertEqual(store.stats().version, this.version, 'the version')
    await store.verify()
    for (const [scope, state] of this.#scopes) {
      const cells = await store.scan({ scope, tag: TAGS.kv })
      const expected = [...state.cells].sort(([a], [b]) => (a < b ? -1 : 1))
      assertEqual(
        JSON.stringify(cells.map(({ key, value }) => [key, value])),
        JSON.stringify(expected),
        `the cells of ${scope}`,
      )
      await this.#checkLog(store, scope, state)
    }
  }

  async #checkLog(store: EmbeddedStore, scope: string, { events, known }: ScopeState): Promise<void> {
    const entries = await store.scan({ scope, tag: TAGS.event })
    assertEqual(entries.length, events.length, `the length of the log of ${scope}`)
    let before = ZERO_HASH
    for (const [sequence, entry] of entries.entries()) {
      const { prevHash, hash, body, time } = parseLogEntry(entry)
      assertEqual(entry.key, u64(sequence), 'a log without gaps')
      assertEqual(entry.time, time, `the time of event ${sequence}`)
      assertEqual(body, events[sequence].body, `event ${sequence} of ${scope}`)
      assertEqual(prevHash, before, `the link to the event before ${sequence}`)
      assertEqual(hash, linkHash(before, sequence, time, sha256(body)), `the hash of event ${sequence}`)
      const answer = this.#answers.get(`${scope} ${sequence}`)
      if (answer !== undefined) {
        assertEqual(hash, answer.hash, `the hash that was answered for event ${sequence}`)
        assertEqual(time, answer.time, `the time that was answered for event ${sequence}`)
      }
      before = hash
    }
    const head = parseHead(await store.get(scope, headTag(TAGS.event), HEAD_KEY))
    assertEqual(head.length, events.length, `the length that the head of ${scope} tells`)
    assertEqual(head.hash, before, `the hash that the head of ${scope} tells`)
    const remembered = await store.scan({ scope, tag: dedupeTag(TAGS.event) })
    assertEqual(remembered.length, known.size, `the dedupe keys of ${scope}`)
    for (const entry of remembered) {
      const { sequence, hash, time, memo } = parseDedupe(entry)
      const event = parseLogEntry(entries[sequence])
      assertEqual(sequence, known.get(entry.key), `the sequence of the dedupe key ${entry.key}`)
      assertEqual(hash, event.hash, `the hash of the dedupe key ${entry.key}`)
      assertEqual(time, event.time, `the time of the dedupe key ${entry.key}`)
      assertEqual(memo, events[sequence].memo, `the memo of the dedupe key ${entry.key}`)
    }
  }
}

function assertEqual(actual: unknown, expected: unknown, what: string): void {
  if (actual === expected) return
  throw new Error(`${what}: ${String(actual).slice(0, 400)} is not ${String(expected).slice(0, 400)}`)
}
