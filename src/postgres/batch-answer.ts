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
  const packed = row['packed'] as ByteString | null
  const [points, ranges] = [list<number | undefined>('lost_points'), list<number | undefined>('lost_ranges')]
  const [hashes, times] = [list<ByteString>('hashes'), list<number>('times')]
  const [duplicates, memos] = [list<boolean>('duplicates'), list<ByteString | undefined>('memos')]
  const appended: BatchAnswer['appended'][number][] = list<number>('sequences').map((sequence, i) => ({
    sequence,
    hash: hashes[i],
    time: times[i],
    duplicate: duplicates[i],
    memo: memos[i],
  }))
  if (packed !== null) unpack(packed, appended)
  return {
    version: row['version'] as number,
    time: row['at_ms'] as number,
    lost: list<number>('lost_txs').map((tx, i) => ({ tx, point: points[i], range: ranges[i] })),
    appended,
  }
}

const PACKED_BYTES = 52

/** Of appends that were all new: place, sequence, time, hash. */
function unpack(packed: ByteString, appended: BatchAnswer['appended'][number][]): void {
  for (let at = 0; at < packed.length; at += PACKED_BYTES) {
    const place = fromU32(packed, at)
    appended[place - 1] = {
      sequence: fromU64(packed, at + 4),
      time: fromU64(packed, at + 12),
      hash: packed.slice(at + 20, at + PACKED_BYTES),
      duplicate: false,
      memo: undefined,
    }
  }
}

/** What each transaction of the batch is told. */
export function outcomesOf(batch: Batch, { version, time, lost, appended }: BatchAnswer): CommitOutcome[] {
  const answers: Appended[] = new Array(appended.length)
  for (const [i, { place, operation }] of batch.sent.entries()) {
    const { sequence, hash, time, duplicate, memo = operation.dedupe?.memo ?? '' } = appended[i]
    answers[place] = { sequence, hash, time, duplicate, memo }
  }
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
      appended: batch.ofTransaction(tx, answers),
    }
  }
  return outcomes
}

function fromU32(bytes: ByteString, at: number): number {
  let number = 0
  for (let i = at; i < at + 4; i++) number = number * 256 + bytes.charCodeAt(i)
  return number
}
