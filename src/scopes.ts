import type { ByteString } from './core/bytes.ts'
import { fromUtf8 } from './core/bytes.ts'
import { AnnalsError } from './core/errors.ts'
import { checkOptions } from './core/options.ts'
import { isSliceOver, nextSlice } from './core/slices.ts'
import { checkText } from './core/text.ts'
import type { Database } from './engine/database.ts'
import {
  HEAD_KEY,
  headTag,
  isShared,
  Namespace,
  type NamespaceParts,
  parseScope,
  TAGS,
  tenantRange,
} from './engine/keys.ts'
import { parseHead } from './engine/log.ts'
import type { Entry, Operation, Place } from './engine/storage.ts'
import { isHeld } from './ledger/lease.ts'
import { LEASE_KEY, leaseIn, placeOf } from './ledger/stored.ts'
import { placeIn } from './primitives/run.ts'
import type { RunScopes } from './primitives/run-scopes.ts'
import { buried, newGrave } from './primitives/tombstones.ts'
import { scopePages } from './upkeep.ts'

/** Data in scopes without a run. `runs.delete` does not reach them, so they are listed and dropped by scope. */

export interface ScopesOptions {
  /** The prefix that the run ids of the scopes must have. */
  readonly prefix?: string
}

export interface DroppableScopes {
  readonly database: Database
  readonly tenant: string
  readonly scopes: RunScopes
  /** Scopes with data of Annals itself. */
  readonly reserved: readonly ByteString[]
}

const PREFIX_BYTES_MAX = 256

/** The scopes that `dropScope` can drop, in byte order, starting after a given one. */
export async function* scopesWithoutRun(
  context: DroppableScopes,
  options: ScopesOptions,
  after?: ByteString,
): AsyncGenerator<Namespace, void, void> {
  checkOptions('scopes', options, ['prefix'])
  const { prefix = '' } = options
  if (prefix !== '') checkText('prefix', prefix, { bytesMax: PREFIX_BYTES_MAX })
  const { database, tenant, reserved } = context
  const range = tenantRange(tenant)
  const from = after === undefined ? range.from : `${after}\0`
  for await (const page of scopePages(database, { ...range, from })) {
    if (isSliceOver()) await nextSlice()
    const wanted = page
      .filter(scope => !reserved.includes(scope))
      .map(scope => ({ scope, parts: parseScope(scope) }))
      .filter(({ parts }) => parts.run.startsWith(prefix))
    const owners = await Promise.all(
      wanted.map(async ({ scope, parts }) => {
        const places = ownerPlaces(context, scope, parts)
        return ownerIn(
          context,
          scope,
          parts,
          await Promise.all(places.map(at => database.get(at.scope, at.tag, at.key))),
        )
      }),
    )
    for (const [i, { parts }] of wanted.entries()) if (owners[i] === undefined) yield Namespace.of(parts)
  }
}

/** Deletes all data of a scope in one commit. If the scope had a log, a tombstone with its length and last hash remains. */
export async function dropScope(context: DroppableScopes, scope: ByteString): Promise<void> {
  const { database, scopes, reserved } = context
  const parts = parseScope(scope)
  if (reserved.includes(scope)) throw refusal(scope, 'holds data of Annals itself')
  const grave = newGrave(scopes.index, database.now())
  const log: Place = { scope, tag: headTag(TAGS.event), key: HEAD_KEY }
  await database.update([log, ...ownerPlaces(context, scope, parts)], ([events, ...found]) => {
    const owner = ownerIn(context, scope, parts, found)
    if (owner !== undefined) throw refusal(scope, `has ${owner}`)
    const operations: Operation[] = [{ op: 'drop', scope }]
    if (parseHead(events).length > 0) {
      const { put } = buried(grave, { runId: parts.run, ...placeIn(parts) }, events)
      operations.push(put)
    }
    return { operations, result: undefined }
  })
}

/** The places to read to find out whether a scope has an owner. */
function ownerPlaces(
  { scopes }: DroppableScopes,
  scope: ByteString,
  parts: NamespaceParts,
): readonly Place[] {
  if (isShared(parts)) return []
  return [
    scopes.record(parts.run),
    { scope, tag: headTag(TAGS.ledger), key: HEAD_KEY },
    placeOf(scope, LEASE_KEY),
  ]
}

/** The scope's owner, and how to delete it instead; undefined if the scope can be dropped. */
function ownerIn(
  { database, scopes }: DroppableScopes,
  scope: ByteString,
  { run }: NamespaceParts,
  [record, ledger, lease]: readonly (Entry | undefined)[],
): string | undefined {
  if (record !== undefined && scopes.scopeIn(run, record) === scope) return 'a run: use runs.delete'
  if (ledger !== undefined) return 'ledger records: use runs.delete'
  const held = leaseIn(lease)
  if (held === undefined || !isHeld(held, database.clock())) return undefined
  return `a lease that ${JSON.stringify(held.owner)} holds: use ledger.releaseLease`
}

function refusal(scope: ByteString, why: string): AnnalsError {
  const text = fromUtf8(scope)
  return new AnnalsError('INVALID_OPERATION', `the scope ${text} can't be dropped: it ${why}`, {
    scope: text,
  })
}
