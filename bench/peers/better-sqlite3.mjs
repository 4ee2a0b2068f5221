import { join } from 'node:path'
import Database from 'better-sqlite3'
import { sqliteStore } from './sqlite.mjs'

export async function openStore(folder, options) {
  return sqliteStore(new Database(join(folder, 'sqlite.db')), options)
}
