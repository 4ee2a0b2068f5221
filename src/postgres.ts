import type { Annals, Guard, LedgerOptions } from 'annals'
import { openOn } from './annals.ts'
import { AnnalsError } from './core/errors.ts'
import { checkFlag, checkOptions } from './core/options.ts'
import { checkText } from './core/text.ts'
import { openPostgresStorage } from './postgres/open.ts'

export interface OpenPostgresOptions {
  /** As `pg` takes it: `postgres://user:password@host:5432/database`. */
  readonly connectionString: string
  /** Where the tables are; it is made if it is missing. `annals` without it. */
  readonly schema?: string
  /** Whose data this handle reaches; `default` without it. */
  readonly tenant?: string
  /**
   * Refuses every write with `READ_ONLY`, and makes and migrates no schema: one that is missing is `INVALID_ARGUMENT`, one that
   * is too old `FORMAT_TOO_OLD`.
   */
  readonly readOnly?: boolean
  /** Verifies the chain of every log that this role reaches before anything is served; else `EVENT_CHAIN_BROKEN`. */
  readonly verifyOnOpen?: boolean
  /** For a connection, however often it has to be tried, and for each statement; 10 s without it. */
  readonly timeoutMs?: number
  /** How many explicit transactions can be under way at the same time, each on a connection of its own; 10 without it. */
  readonly snapshotConnections?: number
  /** Functions that the transitions of machines name. They must be pure and answer at once. */
  readonly guards?: Readonly<Record<string, Guard>>
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
/** The server cuts longer names. */
const SCHEMA_BYTES_MAX = 63

/**
 * Opens a store on PostgreSQL 14 or later, for any number of processes. Brings its schema up to date first, unless
 * `readOnly`. Close it when done.
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
