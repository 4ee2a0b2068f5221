import { readdirSync, readFileSync } from 'node:fs'
import { AnnalsError } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import { type Connection, quoted } from './connection.ts'
import { isServerError } from './failure.ts'

/** A numbered file of SQL. Once released it never changes: what comes later is a file of its own. */
interface Migration {
  readonly number: number
  readonly name: string
  readonly sql: string
  readonly hash: string
}

const FOLDER = new URL('./migrations/', import.meta.url)

const MIGRATIONS: readonly Migration[] = readdirSync(FOLDER)
  .filter(file => file.endsWith('.sql'))
  .sort()
  .map(file => {
    const sql = readFileSync(new URL(file, FOLDER), 'utf8')
    return { number: Number.parseInt(file, 10), name: file, sql, hash: sha256Hex(sql) }
  })

/** Several processes that make the same schema at once: the server lets one do it, and tells the others with one of these. */
const MADE_MEANWHILE: readonly string[] = ['23505', '42P06', '42P07']
const ATTEMPTS_MAX = 10

/**
 * Brings the schema to where this version of Annals needs it. Of several
 * processes one does it, and the others wait and find it done.
 */
export async function migrate(connection: Connection, schema: string, timeoutMs: number): Promise<void> {
  for (let attempt = 1; missing(await applied(connection, schema)).length > 0; attempt++) {
    try {
      await migrateOnce(connection, schema, timeoutMs)
    } catch (error) {
      if (connection.isOpen) await connection.execute('ROLLBACK')
      if (attempt === ATTEMPTS_MAX || !isMadeMeanwhile(error)) throw error
    }
  }
}

/** For a reader, who changes nothing: the schema has to be as this version of Annals needs it. */
export async function checkMigrated(connection: Connection, schema: string): Promise<void> {
  const known = await applied(connection, schema)
  const todo = missing(known)
  if (todo.length === 0) return
  if (known.size === 0) {
    const message = `there is no store in schema ${schema}: with readOnly it is not made`
    throw new AnnalsError('INVALID_ARGUMENT', message, { schema })
  }
  const message = `the schema ${schema} is older than this version of Annals: open it once without readOnly, which brings it up to date`
  throw new AnnalsError('FORMAT_TOO_OLD', message, { schema, missing: todo.map(({ name }) => name) })
}

/** Only the owner can lock the table like this: a role that may read it can't keep anybody from migrating. */
async function migrateOnce(connection: Connection, schema: string, timeoutMs: number): Promise<void> {
  const name = quoted(schema)
  await connection.execute(`BEGIN; SET LOCAL lock_timeout = ${timeoutMs}`)
  await connection.execute(`CREATE SCHEMA IF NOT EXISTS ${name}`)
  await connection.execute(
    `CREATE TABLE IF NOT EXISTS ${name}.migrations (
      number integer PRIMARY KEY, name text NOT NULL, hash text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
    )`,
  )
  await connection.execute(`LOCK TABLE ${name}.migrations IN SHARE ROW EXCLUSIVE MODE`)
  for (const { number, name: file, sql, hash } of missing(await applied(connection, schema))) {
    await connection.execute(sql)
    await connection.execute(
      `INSERT INTO ${name}.migrations (number, name, hash) VALUES (${number}, '${file}', '${hash}')`,
    )
  }
  await connection.execute('COMMIT')
}

function isMadeMeanwhile(error: unknown): boolean {
  return isServerError(error) && MADE_MEANWHILE.includes(error.code)
}

type Applied = ReadonlyMap<number, { readonly name: string; readonly hash: string }>

async function applied(connection: Connection, schema: string): Promise<Applied> {
  const table = `${quoted(schema)}.migrations`
  const [{ there }] = await connection.execute(
    `SELECT to_regclass('${table.replaceAll("'", "''")}') AS there`,
  )
  if (there === null) return new Map()
  const rows = await connection.execute(`SELECT number, name, hash FROM ${table}`)
  return new Map(
    rows.map(({ number, name, hash }) => [number as number, { name: name as string, hash: hash as string }]),
  )
}

/** What is still to be done; refuses a schema that is newer, or was made by something else. */
function missing(applied: Applied): readonly Migration[] {
  const newest = MIGRATIONS[MIGRATIONS.length - 1].number
  for (const [number, { name, hash }] of applied) {
    const known = MIGRATIONS.find(migration => migration.number === number)
    if (known === undefined) {
      const message = `the schema has migration ${name}, and this version of Annals knows ${newest} of them: use a newer one`
      throw new AnnalsError('FORMAT_TOO_NEW', message, { migration: number, newest })
    }
    if (known.hash !== hash) {
      const message = `migration ${name} of the schema is not the one that this version of Annals has`
      throw new AnnalsError('CORRUPT', message, { migration: number })
    }
  }
  return MIGRATIONS.filter(({ number }) => !applied.has(number))
}
