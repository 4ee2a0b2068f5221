import { type ByteString, fromU64 } from '../core/bytes.ts'
import type { Append, Commit, CommitOutcome, PointRead } from '../engine/storage.ts'
import { headOfKey, isScopeShort, tailOfKey } from './address.ts'
import { feedOf, type GivenTimes, isEntryTag } from './batch.ts'
import type { Connection } from './connection.ts'
import { bytes } from './reads.ts'
import { STATEMENTS } from './statements.ts'
import { byteaArray, int2Array, int8Array } from './wire.ts'

/**
 * The commonest commit of all, alone: one append, by somebody who has looked
 * at nothing but entries of the same scope. It has a function of its own, and
 * needs nothing of what makes a batch.
 */
export interface LoneAppend {
  readonly append: Append
  readonly points: readonly PointRead[]
}

/** Undefined if the commit is more than that, or is to be refused. */
export function asLoneAppend({ points = [], ranges = [], operations }: Commit): LoneAppend | undefined {
  if (operations.length !== 1 || ranges.length > 0) return undefined
  const [append] = operations
  if (append.op !== 'append') return undefined
  for (const { scope, tag } of points) if (scope !== append.scope || !isEntryTag(tag)) return undefined
  if (!isScopeShort(append.scope) || !isScopeShort(append.feed ?? '')) return undefined
  return { append, points }
}

export async function commitLone(
  connection: Connection,
  { append, points }: LoneAppend,
  { clockMs, notBeforeMs }: GivenTimes,
  turn: number,
): Promise<CommitOutcome> {
  const { scope, tag, time, bodyHash, body, dedupe, feed } = append
  const [{ answer }] = await connection.run(STATEMENTS.commitAppend, [
    clockMs,
    notBeforeMs,
    bytes(scope),
    tag,
    time,
    bytes(bodyHash),
    bytes(body),
    dedupe && bytes(headOfKey(dedupe.key)),
    bytes(dedupe === undefined ? '' : tailOfKey(dedupe.key)),
    bytes(dedupe?.memo ?? ''),
    feed && bytes(feed),
    feed && feedOf(append, feed).tag,
    int2Array(points.map(point => point.tag)),
    byteaArray(points.map(({ key }) => headOfKey(key))),
    byteaArray(points.map(({ key }) => tailOfKey(key))),
    int8Array(points.map(({ version }) => version)),
    turn,
  ])
  return outcomeIn(answer as ByteString, points)
}

/** As `commit_append` packs it: six numbers, the hash, the memo. */
function outcomeIn(answer: ByteString, points: readonly PointRead[]): CommitOutcome {
  const number = (place: number): number => fromU64(answer, place * 8)
  const lost = number(0)
  if (lost > 0) {
    const { scope, tag, key } = points[lost - 1]
    return { status: 'conflict', on: { scope, tag, key } }
  }
  const [hash, memo] = [answer.slice(48, 80), answer.slice(80)]
  const appended = { sequence: number(3), hash, time: number(4), duplicate: number(5) === 1, memo }
  return { status: 'committed', version: number(1), time: number(2), appended: [appended] }
}
