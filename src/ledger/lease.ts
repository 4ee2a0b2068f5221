import type { ByteString } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import { checkText } from '../core/text.ts'
import type { Scope } from '../engine/keys.ts'
import type { Place } from '../engine/storage.ts'
import { stepInRun } from '../primitives/run-scopes.ts'
import type { LedgerContext } from './context.ts'
import { checkEventRunId } from './fields.ts'
import { epochIn, epochPlace, LEASE_KEY, type Lease, leaseIn, placeOf, putJson } from './stored.ts'

/** Options of `acquireLease`. */
export interface LeaseOptions {
  /** The name of the writer. It appears in errors and is otherwise free. */
  readonly owner: string
  /** How long the lease lasts, in milliseconds. Without it, the lease lasts until it is released or superseded. */
  readonly ttlMs?: number
  /** Throws `WRITER_FENCED` if another owner holds the run. Without it, the run is taken over. */
  readonly ifFree?: boolean
  /** The epoch of the caller's own lease, to extend it. Throws `WRITER_FENCED` if a newer one was granted. */
  readonly epoch?: number
}

const OWNER_BYTES_MAX = 1_024
/** The expiry of a released lease: it is over whatever the clock says. */
const RELEASED = 0

/** Grants a new epoch, or extends the given one. From now on, an append needs this epoch. */
export async function acquireLease(
  { database, scopes, shared }: LedgerContext,
  run: Scope,
  options: LeaseOptions,
): Promise<{ readonly epoch: number }> {
  checkOptions('acquireLease', options, ['owner', 'ttlMs', 'ifFree', 'epoch'])
  const { owner, ttlMs, ifFree = false, epoch: renewed } = options
  checkText('owner', owner, { bytesMax: OWNER_BYTES_MAX })
  if (ttlMs !== undefined && (!Number.isSafeInteger(ttlMs) || ttlMs < 1)) {
    throw invalidArgument('ttlMs', 'must be a positive integer', ttlMs)
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
    // The lease is deleted with its run. The count stays, so that no later run with this id accepts an old epoch.
    if (renewed === undefined) operations.push(putJson(count, epoch))
    return { operations, result: epoch }
  })
  return Object.freeze({ epoch: granted })
}

/** Ends a lease, so that anybody may append. Its epoch stays valid until another one is granted. */
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
 * LD16: throws `WRITER_FENCED` if the lease does not allow the append. An append with an epoch must have the current one, even
 * if its event is a duplicate: a superseded worker must not take the record for its own. A duplicate without an epoch writes
 * nothing and is answered.
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

/** A clock may be set back by up to this much without ending a lease. */
const SET_BACK_MAX_MS = 60_000

/**
 * Whether the lease is in force, so that writers need its epoch. A lease that would last longer than its `ttlMs` was granted
 * while the clock was ahead, and is over. A stored lease without `ttlMs` ends at `expiresAt`.
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
