import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe } from 'vitest'
import { type Annals, open } from '../../src/index.ts'
import { openPostgres } from '../../src/postgres.ts'
import { CONNECTION_STRING, SchemaPool } from '../postgres/schema.ts'

/** A store for one test. */
export interface OpenedStore {
  readonly db: Annals
  close(): Promise<void>
}

/** Defines the same tests on each engine. */
export function onEachEngine(define: (engine: string, openStore: () => Promise<OpenedStore>) => void): void {
  define('memory', async () => {
    const db = await open({ memory: true })
    return { db, close: () => db.close() }
  })

  define('disk', async () => {
    const path = mkdtempSync(join(tmpdir(), 'annals-langgraph-'))
    const db = await open({ path })
    return {
      db,
      async close() {
        await db.close()
        rmSync(path, { recursive: true })
      },
    }
  })

  // reason: needs PostgreSQL; the global setup prints why there is none
  describe.skipIf(CONNECTION_STRING === '')('on PostgreSQL', () => {
    const schemas = new SchemaPool()
    afterAll(() => schemas.drop())

    define('PostgreSQL', async () => {
      const schema = await schemas.take()
      const db = await openPostgres({ connectionString: CONNECTION_STRING, schema })
      return {
        db,
        async close() {
          await db.close()
          schemas.giveBack(schema)
        },
      }
    })
  })
}
