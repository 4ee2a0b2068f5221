import pg from 'pg'
import { inject } from 'vitest'

/** Of the server that the test run shares; empty if there is none. */
export const CONNECTION_STRING: string = inject('postgres')

let count = 0
/** A name for a schema that nobody else has. */
export function newSchema(): string {
  return `annals_test_${process.pid}_${Date.now().toString(36)}_${count++}`
}

/** SQL as another user would send it. */
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
