import type { Annals, Guard, LedgerOptions } from 'annals'
import { openOn } from './annals.ts'
import { AnnalsError } from './core/errors.ts'
import { checkFlag, checkOptions } from './core/options.ts'
import { checkText } from './core/text.ts'
import { openPostgresStorage } from './postgres/open.ts'

/** The options of `openPostgres`. */
export interface OpenPostgresOptions {
  /** The address of the database in the form of `pg`: `postgres://user:password@host:5432/database`. */
  readonly connectionString: string
  /** The schema of the tables, created if missing; `annals` by default. */
  readonly schema?: string
  /** The tenant whose data this handle reads and writes; `default` by default. */
  readonly tenant?: string
  /**
   * Refuses every write with `READ_ONLY`, and neither creates nor migrates the schema. A missing schema is
   * `INVALID_ARGUMENT`, an old one `FORMAT_TOO_OLD`.
   */
  readonly readOnly?: boolean
  /** Verifies the hash chain of every log that the role can read, and throws `EVENT_CHAIN_BROKEN` if one is damaged. */
  readonly verifyOnOpen?: boolean
  /**
   * The time-out of connecting, retries included, and of each statement in milliseconds; 10,000 by default. Opening does not
   * retry if the host is unknown or refuses the connection.
   */
  readonly timeoutMs?: number
  /** The most explicit transactions at a time, each on its own connection; 10 by default. */
  readonly snapshotConnections?: number
  /** The guards that state machines name in their transitions. They must be pure and synchronous. */
  readonly guards?: Readonly<Record<string, Guard>>
  /** How the ledger treats events that no transition allows. */
  readonly ledger?: LedgerOptions
}

const OPTIONS: readonly string[] = [
  'connectionString',
  'schema',
  'tenant',
  'readOnly',
  'verifyOnOpen',
  'timeoutMs',
  'snapshotConnections',
  'guards',
  'ledger',
]
/** The server truncates longer names. */
const SCHEMA_BYTES_MAX = 63

/**
 * Opens a store on PostgreSQL 14 or later, which any number of processes can share. Migrates the schema first, unless
 * `readOnly`. Close the store when done.
 */
export async function openPostgres(options: OpenPostgresOptions): Promise<Annals> {
  checkOptions('openPostgres', options, OPTIONS)
  const { connectionString, schema, timeoutMs, snapshotConnections, readOnly } = options
  checkText('connectionString', connectionString, { bytesMax: 64 * 1024 })
  if (schema !== undefined) checkText('schema', schema, { bytesMax: SCHEMA_BYTES_MAX })
  checkPositive('timeoutMs', timeoutMs)
  checkPositive('snapshotConnections', snapshotConnections)
  for (const name of ['readOnly', 'verifyOnOpen'] as const) checkFlag(name, options[name])
  const settings = { connectionString, schema, timeoutMs, snapshotConnections, readOnly }
  const { tenant = 'default', verifyOnOpen = false, guards = {}, ledger = {} } = options
  return openOn(await openPostgresStorage(settings), { tenant, verifyOnOpen, guards, ledger })
}

function checkPositive(name: string, value: number | undefined): void {
  if (value === undefined || (Number.isSafeInteger(value) && value >= 1)) return
  throw new AnnalsError('INVALID_ARGUMENT', `${name} must be a whole number, 1 or more`, { name, value })
}
