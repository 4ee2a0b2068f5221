import { PostgresSaver } from '@langchain/langgraph-checkpoint-postgres'
import { checkpoints, openPool } from './postgres-pool.mjs'

const CLIENTS = 10

/** LangGraph's checkpointer on PostgreSQL. */
export async function openStore(_folder, { connectionString }) {
  const pool = openPool(connectionString, CLIENTS)
  const saver = new PostgresSaver(pool)
  await saver.setup()
  return { saver, settle: checkpoints(connectionString), close: () => pool.end() }
}
