import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import { checkText } from '../core/text.ts'
import type { Scope } from '../engine/keys.ts'
import type { Place } from '../engine/storage.ts'
import { stepInRun } from '../primitives/run-scopes.ts'
import type { LedgerContext } from './context.ts'
import { checkEventRunId } from './fields.ts'
import { epochIn, epochPlace, LEASE_KEY, type Lease, leaseIn, placeOf, putJson } from './stored.ts'

export interface LeaseOptions {
  /** Who writes; for people to read. */
  readonly owner: string
  /** How long appends without an epoch are refused; without it, until the lease is released or another one is granted. */
  readonly ttlMs?: number
  /** Only if nobody else holds the run; `WRITER_FENCED` otherwise. Without it, a run is taken over. */
  readonly ifFree?: boolean
  /** That of a lease that is still the newest: it is held for longer, under the same epoch. */
  readonly epoch?: number
}

const OWNER_BYTES_MAX = 1_024
/** When a lease that was given back has ended, whatever the clock says. */
const RELEASED = 0

/** Takes the run over: from now on only appends with this epoch are let in. */
export async function acquireLease(
  { database, scopes, shared }: LedgerContext,
  run: Scope,
  options: LeaseOptions,
): Promise<{ readonly epoch: number }> {
  checkOptions('acquireLease', options, ['owner', 'ttlMs', 'ifFree', 'epoch'])
  const { owner, ttlMs, ifFree = false, epoch: renewed } = options
  checkText('owner', owner, { bytesMax: OWNER_BYTES_MAX })
  if (ttlMs !== undefined && (!Number.isSafeInteger(ttlMs) || ttlMs < 1)) {
    const message = 'ttlMs must be a positive integer'
    throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'ttlMs', value: ttlMs })
  }
  const clock = database.clock()
  const name = scopes.named(run)
  const runId = checkEventRunId(name.runId)
  const count = epochPlace(shared, runId)
  const placesIn = (scope: ByteString): readonly Place[] => [placeOf(scope, LEASE_KEY), count]
  const granted = await stepInRun(database, scopes, name, placesIn, (_, [entry, counted], scope) => {
    const held = leaseIn(entry)
    if (renewed !== undefined && held?.epoch !== renewed) throw fenced(runId, held, renewed)
    if (ifFree && isHeld(held, clock) && held?.owner !== owner) throw fenced(runId, held, renewed)
    const epoch = renewed ?? Math.max(held?.epoch ?? 0, epochIn(counted)) + 1
    const lease: Lease = { epoch, owner, ...(ttlMs === undefined ? {} : { ttlMs, expiresAt: clock + ttlMs }) }
    const operations = [putJson(placeOf(scope, LEASE_KEY), lease)]
    // The lease goes with its run; the count stays, so that no epoch of that run is good for a later one with its id.
    if (renewed === undefined) operations.push(putJson(count, epoch))
    return { operations, result: epoch }
  })
  return Object.freeze({ epoch: granted })
}

/** Gives a lease back: from now on it keeps nobody out. Its epoch stays the newest until another one is granted. */
export async function releaseLease(
  { database, scopes }: LedgerContext,
  run: Scope,
  epoch: number,
): Promise<void> {
  checkWhole('epoch', epoch)
  const name = scopes.named(run)
  const runId = checkEventRunId(name.runId)
  const placesIn = (scope: ByteString): readonly Place[] => [placeOf(scope, LEASE_KEY)]
  await stepInRun(database, scopes, name, placesIn, (_, [entry], scope) => {
    const held = leaseIn(entry)
    if (held?.epoch !== epoch) throw fenced(runId, held, epoch)
    const released: Lease = { ...held, expiresAt: RELEASED }
    return { operations: [putJson(placeOf(scope, LEASE_KEY), released)], result: undefined }
  })
}

/**
 * LD16: refuses an append that the lease does not allow. An append with an epoch is judged by it, even if its event is
 * known: a worker that was superseded must not take the record for its own. Without an epoch, an event that is known
 * writes nothing and is answered.
 */
export function checkFence(
  runId: string,
  held: Lease | undefined,
  epoch: number | undefined,
  clock: number,
  isKnown = false,
): void {
  const isAllowed =
    epoch === undefined ? isKnown || !isHeld(held, clock) : held !== undefined && held.epoch === epoch
  if (!isAllowed) throw fenced(runId, held, epoch)
}

/** Clocks are set back by less than this every day; nobody loses a lease over that. */
const SET_BACK_MAX_MS = 60_000

/**
 * Whether the lease keeps out writers without an epoch. One that would last longer than it was granted for was granted under a
 * clock that was ahead, and is over. Of a lease that is stored without `ttlMs`, `expiresAt` alone says when it ends.
 */
export function isHeld(lease: Lease | undefined, clock: number): boolean {
  if (lease === undefined) return false
  const { expiresAt, ttlMs = Number.POSITIVE_INFINITY } = lease
  return expiresAt === undefined || (clock < expiresAt && expiresAt - clock <= ttlMs + SET_BACK_MAX_MS)
}

function fenced(runId: string, held: Lease | undefined, epoch: number | undefined): AnnalsError {
  const run = `run ${JSON.stringify(runId)}`
  const message =
    held === undefined
      ? `${run} has no lease: epoch ${epoch} was never granted, or the run was deleted since`
      : `${run} is written by ${JSON.stringify(held.owner)} under epoch ${held.epoch}${epoch === undefined ? '' : `, not ${epoch}`}`
  return new AnnalsError('WRITER_FENCED', message, {
    runId,
    ...(epoch === undefined ? {} : { epoch }),
    ...(held === undefined ? {} : { held: held.epoch, owner: held.owner }),
  })
}
