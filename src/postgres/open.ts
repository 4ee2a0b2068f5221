import { AnnalsError } from '../core/errors.ts'
import { Connection } from './connection.ts'
import { failure } from './failure.ts'
import { checkMigrated, migrate } from './migrations.ts'
import { STATEMENTS } from './statements.ts'
import { PostgresStore, type StoreSettings } from './store.ts'

export interface PostgresStorageOptions {
  readonly connectionString: string
  /** Where the tables are; it is made if it is missing. `annals` without it. */
  readonly schema?: string | undefined
  /** For a connection, however often it has to be tried, and for each statement; 10 s without it. */
  readonly timeoutMs?: number | undefined
  /** How many snapshots (that is, explicit transactions) can be held at the same time; 10 without it. */
  readonly snapshotConnections?: number | undefined
  /** For tests; the server's clock without it. */
  readonly clock?: (() => number) | undefined
  /** Makes and migrates nothing, and refuses every write with `READ_ONLY`. */
  readonly readOnly?: boolean | undefined
  /** How often entries that have expired are removed; once a minute without it. */
  readonly sweepMs?: number | undefined
}

const SERVER_VERSION_MIN = 140_000
const TIMEOUT_MS = 10_000
const SNAPSHOT_CONNECTIONS = 10
const SWEEP_MS = 60_000

/** The storage port on PostgreSQL. Brings the schema up to date first, unless `readOnly`. */
export async function openPostgresStorage(options: PostgresStorageOptions): Promise<PostgresStore> {
  const { connectionString, schema = 'annals', timeoutMs = TIMEOUT_MS, clock, readOnly = false } = options
  const settings = { connectionString, schema, timeoutMs }
  const connection = await Connection.open(settings)
  try {
    await checkServer(connection)
    if (readOnly) await checkMigrated(connection, schema)
    else await migrate(connection, schema, timeoutMs)
    return new PostgresStore({
      ...settings,
      clock,
      readOnly,
      snapshotConnections: options.snapshotConnections ?? SNAPSHOT_CONNECTIONS,
      opened: await clockOf(connection, clock?.()),
      sweepMs: options.sweepMs ?? SWEEP_MS,
    })
  } catch (error) {
    throw failure(error)
  } finally {
    await connection.end()
  }
}

async function checkServer(connection: Connection): Promise<void> {
  const [row] = await connection.execute(
    "SELECT current_setting('server_version_num')::integer AS number, current_setting('server_version') AS name",
  )
  if ((row['number'] as number) >= SERVER_VERSION_MIN) return
  throw new AnnalsError('INVALID_OPERATION', `PostgreSQL 14 or later is needed; this is ${row['name']}`)
}

async function clockOf(connection: Connection, given: number | undefined): Promise<StoreSettings['opened']> {
  const [row] = await connection.run(STATEMENTS.snapshot, [given])
  const [clock, time] = [row['clock_ms'] as number, row['at_ms'] as number]
  return { clock, readAt: performance.now(), ahead: time > clock ? time : 0 }
}
