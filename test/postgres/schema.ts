import pg from 'pg'
import { inject } from 'vitest'

/** The address of the server that the test run shares; empty if there is none. */
export const CONNECTION_STRING: string = inject('postgres')

let count = 0
/** A unique name for a schema. */
export function newSchema(): string {
  return `annals_test_${process.pid}_${Date.now().toString(36)}_${count++}`
}

/** The address of the same server for another role. */
export function as(role: string): string {
  const url = new URL(CONNECTION_STRING)
  url.username = role
  return url.href
}

/** Runs SQL on its own connection. */
export async function sql(
  text: string,
  connectionString: string = CONNECTION_STRING,
): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString })
  await client.connect()
  try {
    return await client.query(text)
  } finally {
    await client.end()
  }
}

export async function dropSchema(schema: string): Promise<void> {
  await sql(`DROP SCHEMA IF EXISTS ${pg.escapeIdentifier(schema)} CASCADE`)
}

/** A pool of schemas for tests, because emptying a schema is quicker than creating one. */
export class SchemaPool {
  readonly #free: string[] = []
  readonly #all: string[] = []
  /** One session empties all schemas, because opening a session takes as long as emptying a schema. */
  #session: Promise<pg.Client> | undefined
  #turn: Promise<unknown> = Promise.resolve()

  /** A schema that is empty or does not exist yet. */
  async take(): Promise<string> {
    const schema = this.#free.pop()
    if (schema !== undefined) {
      const emptied = this.#turn.then(async () => emptySchema(await this.#client(), schema))
      this.#turn = emptied.catch(() => undefined)
      await emptied
      return schema
    }
    const made = newSchema()
    this.#all.push(made)
    return made
  }

  giveBack(schema: string): void {
    this.#free.push(schema)
  }

  async drop(): Promise<void> {
    for (const schema of this.#all) await dropSchema(schema)
    await (await this.#session)?.end()
  }

  #client(): Promise<pg.Client> {
    this.#session ??= (async () => {
      const client = new pg.Client({ connectionString: CONNECTION_STRING })
      await client.connect()
      return client
    })()
    return this.#session
  }
}

/** Empties a schema. Sequences keep growing, except the clock, which is reset because a test's clock may be behind it. */
async function emptySchema(client: pg.Client, schema: string): Promise<void> {
  await client.query(`SET search_path = ${pg.escapeIdentifier(schema)};
    INSERT INTO deletions
    SELECT tree_id, scope, tag, length, hash, 0, 0, 'test', pg_current_xact_id() FROM trees WHERE length > 0;
    DELETE FROM events; DELETE FROM entries; DELETE FROM feed_remains; DELETE FROM trees;
    SELECT setval('clock', 0)`)
}
