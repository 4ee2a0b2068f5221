import { type ByteString, fromU64 } from '../core/bytes.ts'
import type { Appended, CommitOutcome } from '../engine/storage.ts'
import type { Batch } from './batch.ts'
import type { Row } from './connection.ts'

/** What the server answers to a batch. Lists of appends are in the order in which they were sent. */
export interface BatchAnswer {
  /** Of the first transaction; the others count on from it. */
  readonly version: number
  readonly time: number
  /** For each transaction in conflict, on which of the batch's points or ranges it is; counted from 1. */
  readonly lost: readonly {
    readonly tx: number
    readonly point: number | undefined
    readonly range: number | undefined
  }[]
  readonly appended: readonly (Omit<Appended, 'memo'> & {
    /** Undefined: what it brought. */
    readonly memo: ByteString | undefined
  })[]
}

export function batchAnswer(row: Row): BatchAnswer {
  const list = <T>(name: string): readonly T[] => (row[name] ?? []) as readonly T[]
  const [points, ranges] = [list<number | undefined>('lost_points'), list<number | undefined>('lost_ranges')]
  const [hashes, times] = [list<ByteString>('hashes'), list<number>('times')]
  const [duplicates, memos] = [list<boolean>('duplicates'), list<ByteString | undefined>('memos')]
  return {
    version: row['version'] as number,
    time: row['at_ms'] as number,
    lost: list<number>('lost_txs').map((tx, i) => ({ tx, point: points[i], range: ranges[i] })),
    appended: list<number>('sequences').map((sequence, i) => ({
      sequence,
      hash: hashes[i],
      time: times[i],
      duplicate: duplicates[i],
      memo: memos[i],
    })),
  }
}

/** Of a lone append, as `commit_append` packs it: six numbers, the hash, the memo. */
export function appendAnswer(bytes: ByteString): BatchAnswer {
  const number = (place: number): number => fromU64(bytes, place * 8)
  const point = number(0)
  if (point > 0) {
    return { version: 0, time: 0, lost: [{ tx: 0, point, range: undefined }], appended: [] }
  }
  const [hash, memo] = [bytes.slice(48, 80), bytes.slice(80)]
  const appended = { sequence: number(3), hash, time: number(4), duplicate: number(5) === 1, memo }
  return { version: number(1), time: number(2), lost: [], appended: [appended] }
}

/** What each transaction of the batch is told. */
export function outcomesOf(batch: Batch, { version, time, lost, appended }: BatchAnswer): CommitOutcome[] {
  const answers = appended.map((answer, i) => ({ ...answer, memo: answer.memo ?? batch.memo(i) }))
  const outcomes: CommitOutcome[] = []
  for (const { tx, point, range } of lost) {
    outcomes[tx] = {
      status: 'conflict',
      on: point === undefined ? batch.range(range ?? 1) : batch.point(point),
    }
  }
  for (let tx = 0; tx < batch.size; tx++) {
    outcomes[tx] ??= {
      status: 'committed',
      version: version + tx,
      time,
      appended: batch.appendsOf(tx).map(i => answers[i]),
    }
  }
  return outcomes
}
