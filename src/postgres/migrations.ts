import { readdirSync, readFileSync } from 'node:fs'
import { AnnalsError } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import { type Connection, quoted } from './connection.ts'
import { isServerError } from './failure.ts'

/** A numbered SQL file. After a release it never changes; later changes are new files. */
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

/** The errors that a process gets if another one creates the same schema at the same time. */
const CREATED_MEANWHILE: readonly string[] = ['23505', '42P06', '42P07']
const ATTEMPTS_MAX = 10

/**
 * Applies the missing migrations. Of several processes one applies them, and the
 * others wait for it.
 */
export async function migrate(connection: Connection, schema: string, timeoutMs: number): Promise<void> {
  for (let attempt = 1; missing(await applied(connection, schema)).length > 0; attempt++) {
    try {
      await migrateOnce(connection, schema, timeoutMs)
    } catch (error) {
      if (connection.isOpen) await connection.execute('ROLLBACK')
      if (attempt === ATTEMPTS_MAX || !isCreatedMeanwhile(error)) throw error
    }
  }
}

/** Throws unless all migrations are applied. Used by read-only stores, which do not migrate. */
export async function checkMigrated(connection: Connection, schema: string): Promise<void> {
  const known = await applied(connection, schema)
  const todo = missing(known)
  if (todo.length === 0) return
  if (known.size === 0) {
    const message = `there is no store in schema ${schema}, and readOnly does not create one`
    throw new AnnalsError('INVALID_ARGUMENT', message, { schema })
  }
  const message = `schema ${schema} is older than this version of Annals: open it once without readOnly to migrate it`
  throw new AnnalsError('FORMAT_TOO_OLD', message, { schema, missing: todo.map(({ name }) => name) })
}

/** The lock keeps other processes from migrating. Only the owner can take it, so a tenant's role cannot block migrations. */
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

function isCreatedMeanwhile(error: unknown): boolean {
  return isServerError(error) && CREATED_MEANWHILE.includes(error.code)
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

/** The migrations that are not applied yet. Throws if the schema is newer than this version, or if a file has changed. */
function missing(applied: Applied): readonly Migration[] {
  const newest = MIGRATIONS[MIGRATIONS.length - 1].number
  for (const [number, { name, hash }] of applied) {
    const known = MIGRATIONS.find(migration => migration.number === number)
    if (known === undefined) {
      const message = `the schema has migration ${name}, but this version of Annals only knows ${newest}: use a newer version`
      throw new AnnalsError('FORMAT_TOO_NEW', message, { migration: number, newest })
    }
    if (known.hash !== hash) {
      const message = `migration ${name} differs from the one that was applied to the schema`
      throw new AnnalsError('CORRUPT', message, { migration: number })
    }
  }
  return MIGRATIONS.filter(({ number }) => !applied.has(number))
}
