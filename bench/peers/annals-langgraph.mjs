import { join } from 'node:path'
import { open } from '../../dist/index.js'
import { AnnalsSaver } from '../../dist/integrations/langgraph.js'
import { openPostgres } from '../../dist/postgres.js'
import { checkpoints } from './postgres-pool.mjs'

/** The checkpointer of `annals/langgraph`, in a folder or on PostgreSQL. */
export async function openStore(folder, { durability, connectionString }) {
  const db = connectionString
    ? await openPostgres({ connectionString })
    : await open({ path: join(folder, 'annals'), durability })
  const settle = connectionString ? checkpoints(connectionString) : () => db.checkpoint()
  return { saver: new AnnalsSaver(db), settle, close: () => db.close() }
}
