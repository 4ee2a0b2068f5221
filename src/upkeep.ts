import { type ByteString, fromUtf8 } from './core/bytes.ts'
import { AnnalsError } from './core/errors.ts'
import type { Database } from './engine/database.ts'
import { type Indexing, type IndexProblem, indexProblems, mendIndex } from './engine/indexes.ts'
import { parseScope, tenantRange } from './engine/keys.ts'
import type { ScopeRange } from './engine/storage.ts'
import { verifyLedgerChain } from './ledger/verification.ts'
import { verifyEvents } from './primitives/event.ts'
import { RUN_INDEXES } from './primitives/run-records.ts'
import { TRACE_INDEXES } from './primitives/trace-store.ts'
import { TELEMETRY_INDEXES } from './telemetry/stored-run.ts'

/** Verification and repair of a whole store: its indexes and its hash chains. */

/** A wrong index entry, or an unreadable record. */
export interface IndexFault {
  /** `tenant:app:agent:run`, escaped. */
  readonly scope: string
  /** The kind of records. */
  readonly of: 'traces' | 'runs' | 'telemetry'
  /**
   * `missing`: a record lacks the entry. `orphaned`: no record has the entry. `wrong`: the entry has a value. `unreadable`: the
   * record is damaged or belongs to another id; it can't be repaired, and its index entries are left alone.
   */
  readonly problem: 'missing' | 'orphaned' | 'wrong' | 'unreadable'
  /** The id of the trace or run. */
  readonly id: string
}

/** The result of verifying the indexes. */
export interface IndexReport {
  /** Whether there is no problem. */
  readonly ok: boolean
  /** The problems found. */
  readonly problems: readonly IndexFault[]
}

const SCOPES_PAGE = 256
const INDEXED: readonly (readonly [IndexFault['of'], Indexing])[] = [
  ['traces', TRACE_INDEXES],
  ['runs', RUN_INDEXES],
  ['telemetry', TELEMETRY_INDEXES],
]

/** Compares every record of the scopes with its index entries. */
export async function verifyIndices(
  database: Database,
  scopes: AsyncIterable<ByteString>,
): Promise<IndexReport> {
  const problems: IndexFault[] = []
  for await (const { scope, of, problem } of faults(database, scopes)) {
    const fault = { scope: fromUtf8(scope), of, problem: problem.problem, id: fromUtf8(problem.id) }
    problems.push(Object.freeze(fault))
  }
  return Object.freeze({ ok: problems.length === 0, problems: Object.freeze(problems) })
}

/** Repairs the index entries of the scopes, and counts the repairs. */
export async function rebuildIndices(
  database: Database,
  scopes: AsyncIterable<ByteString>,
): Promise<{ readonly repaired: number }> {
  let repaired = 0
  for await (const { scope, indexing, problem } of faults(database, scopes)) {
    if (await mendIndex(database, scope, indexing, problem)) repaired++
  }
  return Object.freeze({ repaired })
}

interface Fault {
  readonly scope: ByteString
  readonly of: IndexFault['of']
  readonly indexing: Indexing
  readonly problem: IndexProblem
}

async function* faults(
  database: Database,
  scopes: AsyncIterable<ByteString>,
): AsyncGenerator<Fault, void, void> {
  for await (const scope of scopes) {
    for (const [of, indexing] of INDEXED) {
      // As of one moment.
      const found = await database.view(async reader => {
        const problems: IndexProblem[] = []
        for await (const problem of indexProblems(reader, scope, indexing)) problems.push(problem)
        return problems
      })
      for (const problem of found) yield { scope, of, indexing, problem }
    }
  }
}

/** The scopes of the store that lie in the range. */
export async function* allScopes(
  database: Database,
  range: Omit<ScopeRange, 'limit'> = {},
): AsyncGenerator<ByteString, void, void> {
  for await (const page of scopePages(database, range)) yield* page
}

/** The same scopes, page by page. */
export async function* scopePages(
  database: Database,
  range: Omit<ScopeRange, 'limit'>,
): AsyncGenerator<readonly ByteString[], void, void> {
  for (let from = range.from; ; ) {
    const page = await database.scopes({ ...range, from, limit: SCOPES_PAGE })
    yield page
    if (page.length < SCOPES_PAGE) return
    from = `${page[page.length - 1]}\0`
  }
}

/** The names of all tenants with data in the store, reserved ones such as `_annals` included. */
export async function allTenants(database: Database): Promise<readonly string[]> {
  const tenants: string[] = []
  for (let from: ByteString | undefined; ; ) {
    const [scope] = await database.scopes({ from, limit: 1 })
    if (scope === undefined) return Object.freeze(tenants)
    const { tenant } = parseScope(scope)
    tenants.push(tenant)
    // Skips the other scopes of this tenant.
    from = tenantRange(tenant).to
  }
}

/** A single scope, as an iterable. */
export async function* oneScope(scope: ByteString): AsyncGenerator<ByteString, void, void> {
  yield scope
}

const LOGS: readonly (readonly [string, typeof verifyEvents])[] = [
  ['event log', verifyEvents],
  ['ledger', verifyLedgerChain],
]

/** P13: recomputes the hash chain of every event log and ledger. Throws `EVENT_CHAIN_BROKEN` at the first broken one. */
export async function verifyChains(database: Database): Promise<void> {
  for await (const scope of allScopes(database)) {
    for (const [log, verify] of LOGS) {
      const { isValid, firstInvalid, error } = await verify(database, scope)
      if (isValid) continue
      const message = `the ${log} of ${fromUtf8(scope)} was changed: ${error}`
      throw new AnnalsError('EVENT_CHAIN_BROKEN', message, { scope: fromUtf8(scope), sequence: firstInvalid })
    }
  }
}
