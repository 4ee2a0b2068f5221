import { AnnalsError } from '../core/errors.ts'
import { Connection } from './connection.ts'
import { failure } from './failure.ts'
import { checkMigrated, migrate } from './migrations.ts'
import { PostgresStore, type StoreSettings } from './postgres-store.ts'
import { STATEMENTS } from './statements.ts'

export interface PostgresStorageOptions {
  readonly connectionString: string
  /** The schema of the tables, created if missing; `annals` by default. */
  readonly schema?: string | undefined
  /** The time-out of connecting, retries included, and of each statement; 10 s by default. */
  readonly timeoutMs?: number | undefined
  /** The most snapshots (that is, explicit transactions) at a time; 10 by default. */
  readonly snapshotConnections?: number | undefined
  /** The clock of a test; the server's clock by default. */
  readonly clock?: (() => number) | undefined
  /** Creates and migrates nothing, and refuses every write with `READ_ONLY`. */
  readonly readOnly?: boolean | undefined
  /** How often expired entries are removed; once a minute by default. */
  readonly sweepMs?: number | undefined
}

const SERVER_VERSION_MIN = 140_000
const TIMEOUT_MS = 10_000
const SNAPSHOT_CONNECTIONS = 10
const SWEEP_MS = 60_000

/** Opens the storage port on PostgreSQL. Migrates the schema first, unless `readOnly`. */
export async function openPostgresStorage(options: PostgresStorageOptions): Promise<PostgresStore> {
  const { connectionString, schema = 'annals', timeoutMs = TIMEOUT_MS, clock, readOnly = false } = options
  const settings = { connectionString, schema, timeoutMs }
  const connection = await Connection.open(settings, { isFirst: true })
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
