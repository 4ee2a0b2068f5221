import type { ByteString } from '../core/bytes.ts'
import type { Append, Commit, CommitOutcome, PointRead } from '../engine/storage.ts'
import { feedOf, headOfKey, isEntryTag, isScopeShort, tailOfKey } from './address.ts'
import { appendedOf, type GivenTimes } from './commit-batch.ts'
import type { Connection } from './connection.ts'
import { STATEMENTS } from './statements.ts'
import { arrayOf, decoded, encoded } from './wire.ts'
import { BATCH_OUTCOME, LONE_APPEND, LONE_POINT } from './wire-types.ts'

/**
 * The most common commit: one append that relies on nothing but entries of the
 * same scope. If it is alone it has its own function on the server, because a
 * batch would cost more than the append.
 */
export interface LoneAppend {
  readonly append: Append
  readonly points: readonly PointRead[]
}

/** Undefined if the commit is anything else, or is invalid. */
export function asLoneAppend({ points = [], ranges = [], operations }: Commit): LoneAppend | undefined {
  if (operations.length !== 1 || ranges.length > 0) return undefined
  const [append] = operations
  if (append.op !== 'append') return undefined
  for (const { scope, tag } of points) if (scope !== append.scope || !isEntryTag(tag)) return undefined
  if (!isScopeShort(append.scope) || !isScopeShort(append.feed ?? '')) return undefined
  return { append, points }
}

const POINTS = arrayOf(LONE_POINT)

export async function commitLone(
  connection: Connection,
  { append, points }: LoneAppend,
  { clockMs, notBeforeMs }: GivenTimes,
  turn: number,
): Promise<CommitOutcome> {
  const { scope, tag, time, bodyHash, body, dedupe, feed } = append
  const memo = dedupe?.memo ?? ''
  const [{ outcome }] = await connection.run(STATEMENTS.commitAppend, [
    clockMs,
    notBeforeMs,
    turn,
    encoded(LONE_APPEND, {
      scope,
      tag,
      time,
      bodyHash,
      body,
      dedupe: dedupe && headOfKey(dedupe.key),
      dedupeTail: dedupe === undefined ? '' : tailOfKey(dedupe.key),
      memo,
      feedScope: feed,
      feedTag: feed === undefined ? undefined : feedOf(append, feed).tag,
    }),
    encoded(
      POINTS,
      points.map(({ tag, key, version }) => ({ tag, key: headOfKey(key), tail: tailOfKey(key), version })),
    ),
  ])
  const { version, committedAt, conflicts, appended } = decoded(BATCH_OUTCOME, outcome as ByteString)
  if (conflicts !== undefined) {
    const { scope, tag, key } = points[conflicts[0].point! - 1]
    return { status: 'conflict', on: { scope, tag, key } }
  }
  const answers = appended!.map(answer => appendedOf(answer, memo))
  return { status: 'committed', version, time: committedAt, appended: answers }
}
