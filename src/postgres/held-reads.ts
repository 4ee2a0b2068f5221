import type { ByteString } from '../core/bytes.ts'
import { storageKey } from '../engine/keys.ts'
import { type NewerChange, overlaid } from '../engine/overlay.ts'
import type { BoundedRange, Entry, Operation, Place } from '../engine/storage.ts'
import { keyRangeOf, treeAddress } from './address.ts'
import type { GivenTimes } from './commit-batch.ts'
import type { Connection } from './connection.ts'
import { encodedPlaces, entryOf } from './reads.ts'
import { STATEMENTS } from './statements.ts'
import { arrayOf, bytea, encoded } from './wire.ts'
import { TREE_RANGE } from './wire-types.ts'

/** The most entries that the ranges of one call return together. */
export const ENTRIES_MAX: number = 10_000
/** The bytes of these entries, as far as the sizes of the last ones tell. */
const BYTES_MAX = 16 * 1024 * 1024
/** As for a commit: a call holds the locks of all its scopes. */
const SCOPES_MAX = 256

const SCOPES = arrayOf(bytea)
const RANGES = arrayOf(TREE_RANGE)

/** The reads of an update, and the scopes to lock for it. */
export interface DeclaredReads {
  readonly places: readonly Place[]
  readonly ranges: readonly BoundedRange[]
  readonly scopes: ReadonlySet<ByteString>
}

/** A range that the updates of a round read, up to the sum of their limits. */
interface SharedRange {
  readonly range: BoundedRange
  limit: number
}

/**
 * The reads of all updates of a round, each place and each range once. An update
 * may remove the entries that it has read, and the next update then reads further.
 * So a range is read up to the sum of the limits of all updates that declare it.
 */
export class RoundReads {
  readonly scopes: Set<ByteString> = new Set()
  readonly #places = new Map<ByteString, Place>()
  readonly #ranges = new Map<string, SharedRange>()
  readonly #entriesMax: number
  #entries = 0

  /** A single update may read more than `entriesMax` entries. */
  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax
  }

  /** Adds the reads of an update. Returns false, and changes nothing, if there is no room for them. */
  add({ places, ranges, scopes }: DeclaredReads): boolean {
    const entries = ranges.reduce((sum, { limit }) => sum + limit, 0)
    if (this.scopes.size > 0) {
      if (this.#entries + entries > this.#entriesMax) return false
      if (this.scopes.size + scopes.size > SCOPES_MAX) return false
    }
    this.#entries += entries
    for (const scope of scopes) this.scopes.add(scope)
    for (const place of places) this.#places.set(placeId(place), place)
    for (const range of ranges) {
      const known = this.#ranges.get(rangeId(range))
      if (known === undefined) this.#ranges.set(rangeId(range), { range, limit: range.limit })
      else known.limit += range.limit
    }
    return true
  }

  /** Locks the scopes and reads, in a transaction that has begun. */
  async holdAndRead(connection: Connection, given: GivenTimes, idleMs: number): Promise<HeldReads> {
    const places = [...this.#places.values()]
    const ranges = [...this.#ranges.values()].map(({ range, limit }) => ({
      ...treeAddress(range),
      range: keyRangeOf({ ...range, limit }),
    }))
    const rows = await connection.run(STATEMENTS.holdAndRead, [
      given.clockMs,
      given.notBeforeMs ?? 0,
      idleMs,
      encoded(SCOPES, [...this.scopes]),
      encodedPlaces(places),
      encoded(RANGES, ranges),
    ])
    const [first, ...entries] = rows
    const held = new HeldReads({
      token: first['key'] as ByteString,
      version: first['version'] as number,
      time: first['committed_at'] as number,
      clock: first['expires_at'] as number,
    })
    const scanned = ranges.map((): Entry[] => [])
    for (const row of entries) {
      const part = row['part'] as number
      if (part > 0) scanned[part - 1].push(entryOf(row['key'] as ByteString, row))
      else {
        const place = places[(row['i'] as number) - 1]
        held.points.set(placeId(place), entryOf(place.key, row))
      }
    }
    for (const [i, [id, { limit }]] of [...this.#ranges].entries()) {
      held.ranges.set(id, { entries: scanned[i], isComplete: scanned[i].length < limit })
    }
    return held
  }
}

/** The version and times that the server has given to a round. */
interface HeldTimes {
  /** Proves to the server that it gave this version and this time. */
  readonly token: ByteString
  /** The version of the first step that writes. */
  readonly version: number
  readonly time: number
  /** Decides which entries have expired. */
  readonly clock: number
}

/**
 * The entries that a round has read under its locks, with the writes of its
 * earlier steps laid over them. Nothing else can change them until the round ends.
 */
export class HeldReads {
  readonly times: HeldTimes
  readonly points: Map<ByteString, Entry> = new Map()
  /** `isComplete` says that the range has no further entries. */
  readonly ranges: Map<string, { readonly entries: readonly Entry[]; readonly isComplete: boolean }> =
    new Map()
  /** The newest write of each key, by tree and key. */
  readonly #written = new Map<ByteString, Map<ByteString, NewerChange>>()

  constructor(times: HeldTimes) {
    this.times = times
  }

  /** How many entries the ranges of the next round should return at most. */
  get entriesMaxNext(): number {
    let count = 0
    let bytes = 0
    for (const { entries } of this.ranges.values()) {
      count += entries.length
      for (const { value } of entries) bytes += value.length
    }
    return Math.min(ENTRIES_MAX, Math.floor((BYTES_MAX * Math.max(1, count)) / Math.max(1, bytes)))
  }

  found(place: Place): Entry | undefined {
    const change = this.#written.get(treeId(place))?.get(place.key)
    return change === undefined ? this.points.get(placeId(place)) : change.entry
  }

  /** The entries of the ranges. Undefined if earlier steps have removed so many that the round has not read far enough. */
  scannedAll(ranges: readonly BoundedRange[]): readonly (readonly Entry[])[] | undefined {
    const scanned: (readonly Entry[])[] = []
    for (const range of ranges) {
      const entries = this.#scanned(range)
      if (entries === undefined) return undefined
      scanned.push(entries)
    }
    return scanned
  }

  #scanned(range: BoundedRange): readonly Entry[] | undefined {
    const { entries, isComplete } = this.ranges.get(rangeId(range))!
    const { from = '', to, reverse = false, limit } = range
    const written = this.#written.get(treeId(range))
    if (written === undefined) return entries.slice(0, limit)
    const last = entries.at(-1)?.key
    // Beyond the last entry that was read, stored entries may precede the written ones.
    const isKnown = (key: ByteString): boolean =>
      isComplete || (last !== undefined && (reverse ? key >= last : key <= last))
    const isInside = (key: ByteString): boolean =>
      key >= from && (to === undefined || key < to) && isKnown(key)
    const changes = [...written.values()].filter(({ key }) => isInside(key))
    const found = overlaid(entries, changes, { reverse, limit })
    return isComplete || found.length === limit ? found : undefined
  }

  /** Adds the puts and deletes of a step. `writer` counts the steps that write, from 0. */
  write(operations: readonly Operation[], writer: number): void {
    const { time, clock } = this.times
    const version = this.times.version + writer
    for (const operation of operations) {
      if (operation.op === 'drop' || operation.op === 'append') continue
      const { key } = operation
      const id = treeId(operation)
      const tree = this.#written.get(id) ?? new Map<ByteString, NewerChange>()
      this.#written.set(id, tree)
      const {
        value,
        expiresAt = 0,
        time: own = time,
      } = operation.op === 'put' ? operation : { value: undefined }
      const isGone = value === undefined || (expiresAt !== 0 && expiresAt <= clock)
      const entry = isGone ? undefined : { key, value, version, time: Math.min(own, time), expiresAt }
      tree.set(key, { key, entry })
    }
  }
}

function treeId({ scope, tag }: { readonly scope: ByteString; readonly tag: number }): ByteString {
  return storageKey(scope, tag, '')
}

function placeId({ scope, tag, key }: Place): ByteString {
  return storageKey(scope, tag, key)
}

/** The same for ranges that differ only in their limit. */
function rangeId({ scope, tag, from = '', to, reverse = false }: BoundedRange): string {
  return JSON.stringify([scope, tag, from, to, reverse])
}
