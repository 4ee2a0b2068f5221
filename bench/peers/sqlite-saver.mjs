import { join } from 'node:path'
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite'
import Database from 'better-sqlite3'

/** LangGraph's checkpointer on SQLite. It uses a write-ahead log, which survives a power cut only with `synchronous = FULL`. */
export async function openStore(folder, { durability }) {
  const db = new Database(join(folder, 'checkpoints.db'))
  const saver = new SqliteSaver(db)
  saver.setup()
  db.pragma(`synchronous = ${durability === 'durable' ? 'FULL' : 'NORMAL'}`)
  return { saver, settle: async () => db.pragma('wal_checkpoint(PASSIVE)'), close: async () => db.close() }
}
