import { join } from 'node:path'
import Database from 'better-sqlite3'
import { link, NO_HASH } from './chain.mjs'

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS entries (
    scope TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
  );
  CREATE TABLE IF NOT EXISTS events (
    run TEXT NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL,
    dedupe_key TEXT NOT NULL, hash TEXT NOT NULL, body TEXT NOT NULL,
    UNIQUE (run, seq), UNIQUE (run, dedupe_key)
  );`

export async function openStore(folder, { durability }) {
  const db = new Database(join(folder, 'sqlite.db'))
  db.pragma('journal_mode = WAL')
  db.pragma(`synchronous = ${durability === 'durable' ? 'FULL' : 'NORMAL'}`)
  db.pragma('cache_size = -65536')
  db.exec(SCHEMA)
  const put = db.prepare(
    `INSERT INTO entries VALUES (?, ?, ?, 1)
     ON CONFLICT DO UPDATE SET value = excluded.value, version = version + 1`,
  )
  const remove = db.prepare('DELETE FROM entries WHERE scope = ? AND key = ?')
  const get = db.prepare('SELECT value FROM entries WHERE scope = ? AND key = ?').pluck()
  const list = db.prepare('SELECT key, value FROM entries WHERE scope = ? AND key >= ? ORDER BY key LIMIT ?')
  const cas = db.prepare(
    'UPDATE entries SET value = ?, version = version + 1 WHERE scope = ? AND key = ? AND version = ?',
  )
  const head = db.prepare('SELECT seq, hash FROM events WHERE run = ? ORDER BY seq DESC LIMIT 1')
  const insert = db.prepare(
    'INSERT INTO events VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run, dedupe_key) DO NOTHING',
  )
  const known = db.prepare('SELECT seq, hash FROM events WHERE run = ? AND dedupe_key = ?')

  const putAll = db.transaction(pairs => {
    for (const [[scope, key], value] of pairs) put.run(scope, key, value)
  })
  const removeAll = db.transaction(places => {
    for (const [scope, key] of places) remove.run(scope, key)
  })
  function appendStep(run, body, dedupeKey) {
    const last = head.get(run)
    const sequence = last === undefined ? 0 : last.seq + 1
    const time = Date.now()
    const hash = link(last?.hash ?? NO_HASH, sequence, time, body)
    if (insert.run(run, sequence, time, dedupeKey, hash, body).changes === 1) {
      return { sequence, hash, duplicate: false }
    }
    const first = known.get(run, dedupeKey)
    return { sequence: first.seq, hash: first.hash, duplicate: true }
  }
  const appendOne = db.transaction(appendStep)
  const appendAll = db.transaction((run, events) =>
    events.map(([body, dedupeKey]) => appendStep(run, body, dedupeKey)),
  )

  return {
    at: (scope, key) => [scope, key],
    valueOf: value => value,
    async put([scope, key], value) {
      put.run(scope, key, value)
    },
    async putMany(pairs) {
      putAll(pairs)
    },
    async removeMany(places) {
      removeAll(places)
    },
    async get([scope, key]) {
      return get.get(scope, key)
    },
    async list([scope, key], limit) {
      return list.all(scope, key, limit)
    },
    async createCell([scope, key], value) {
      put.run(scope, key, value)
      return 1
    },
    async cas([scope, key], expected, value) {
      return cas.run(value, scope, key, expected).changes === 1 ? expected + 1 : 0
    },
    append: async (run, body, dedupeKey) => appendOne.immediate(run, body, dedupeKey),
    appendMany: async (run, events) => appendAll.immediate(run, events),
    /** SQLite checkpoints within the commits that make it due: nothing is left over. */
    async settle() {},
    async checkpoint() {
      db.pragma('wal_checkpoint(TRUNCATE)')
    },
    async close() {
      db.close()
    },
  }
}
