import { bodyOf, link, NO_HASH } from './chain.mjs'

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS entries (
    scope TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
  );
  CREATE TABLE IF NOT EXISTS events (
    run TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, payload TEXT NOT NULL,
    time INTEGER NOT NULL, prev_hash TEXT NOT NULL, hash TEXT NOT NULL,
    UNIQUE (run, seq)
  );
  CREATE TABLE IF NOT EXISTS steps (
    run TEXT NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL,
    dedupe_key TEXT NOT NULL, hash TEXT NOT NULL, body TEXT NOT NULL,
    UNIQUE (run, seq), UNIQUE (run, dedupe_key)
  );`

/** A store over an open SQLite database that has the interface of better-sqlite3. */
export function sqliteStore(db, { durability }) {
  db.pragma('journal_mode = WAL')
  db.pragma(`synchronous = ${durability === 'durable' ? 'FULL' : 'NORMAL'}`)
  db.pragma('cache_size = -65536')
  db.exec(SCHEMA)
  return {
    at: (scope, key) => [scope, key],
    ...entriesOf(db),
    ...eventsOf(db),
    ...dedupedEventsOf(db),
    /** Does nothing: SQLite checkpoints within the commit that makes a checkpoint due, so no work is left over. */
    async settle() {},
    async checkpoint() {
      db.pragma('wal_checkpoint(TRUNCATE)')
    },
    async close() {
      db.close()
    },
  }
}

function entriesOf(db) {
  const put = db.prepare(
    `INSERT INTO entries VALUES (?, ?, ?, 1)
     ON CONFLICT DO UPDATE SET value = excluded.value, version = version + 1`,
  )
  const remove = db.prepare('DELETE FROM entries WHERE scope = ? AND key = ?')
  const get = db.prepare('SELECT value FROM entries WHERE scope = ? AND key = ?').pluck()
  const list = db.prepare('SELECT key FROM entries WHERE scope = ? AND key > ? ORDER BY key LIMIT ?').pluck()
  const entries = db
    .prepare('SELECT key, value FROM entries WHERE scope = ? AND key > ? ORDER BY key LIMIT ?')
    .raw()
  const cas = db.prepare(
    'UPDATE entries SET value = ?, version = version + 1 WHERE scope = ? AND key = ? AND version = ?',
  )
  const putAll = db.transaction(pairs => {
    for (const [[scope, key], value] of pairs) put.run(scope, key, JSON.stringify(value))
  })
  const removeAll = db.transaction(places => {
    for (const [scope, key] of places) remove.run(scope, key)
  })
  return {
    async put([scope, key], value) {
      put.run(scope, key, JSON.stringify(value))
    },
    async putMany(pairs) {
      putAll(pairs)
    },
    async removeMany(places) {
      removeAll(places)
    },
    async get([scope, key]) {
      const found = get.get(scope, key)
      return found === undefined ? undefined : JSON.parse(found)
    },
    async list([scope, key], limit) {
      return list.all(scope, key, limit)
    },
    async entries([scope, key], limit) {
      const found = entries.all(scope, key, limit)
      for (const entry of found) entry[1] = JSON.parse(entry[1])
      return found
    },
    async createCell([scope, key], value) {
      put.run(scope, key, JSON.stringify(value))
      return 1
    },
    async cas([scope, key], expected, value) {
      const { changes } = cas.run(JSON.stringify(value), scope, key, expected)
      if (changes !== 1) throw new Error('the cell has another version')
      return expected + 1
    },
  }
}

/** Events in one table, unique by run and sequence. */
function eventsOf(db) {
  const head = db.prepare('SELECT seq, hash FROM events WHERE run = ? ORDER BY seq DESC LIMIT 1')
  const insert = db.prepare('INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)')
  const read = db.prepare('SELECT * FROM events WHERE run = ? AND seq = ?')
  const readRange = db.prepare('SELECT * FROM events WHERE run = ? AND seq >= ? AND seq < ? ORDER BY seq')

  function step(run, type, payload) {
    const last = head.get(run)
    const sequence = last === undefined ? 0 : last.seq + 1
    const prevHash = last?.hash ?? NO_HASH
    const time = Date.now()
    const text = JSON.stringify(payload)
    const hash = link(prevHash, sequence, time, bodyOf(run, type, text))
    insert.run(run, sequence, type, text, time, prevHash, hash)
    return { sequence, hash }
  }
  const eventOf = ({ seq, type, payload, time, prev_hash, hash }) => ({
    sequence: seq,
    type,
    payload: JSON.parse(payload),
    timestamp: time,
    prevHash: prev_hash,
    hash,
  })
  const appendOne = db.transaction(step)
  const appendAll = db.transaction((run, events) =>
    events.map(({ type, payload }) => step(run, type, payload)),
  )
  return {
    append: async (run, type, payload) => appendOne.immediate(run, type, payload),
    appendMany: async (run, events) => appendAll.immediate(run, events),
    async read(run, sequence) {
      const row = read.get(run, sequence)
      return row === undefined ? undefined : eventOf(row)
    },
    async readRange(run, start, end) {
      return readRange.all(run, start, end).map(eventOf)
    },
  }
}

/** Events that are also unique by run and dedupe key. */
function dedupedEventsOf(db) {
  const head = db.prepare('SELECT seq, hash FROM steps WHERE run = ? ORDER BY seq DESC LIMIT 1')
  const insert = db.prepare(
    'INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run, dedupe_key) DO NOTHING',
  )
  const known = db.prepare('SELECT seq, hash FROM steps WHERE run = ? AND dedupe_key = ?')

  function step(run, payload, dedupeKey) {
    const last = head.get(run)
    const sequence = last === undefined ? 0 : last.seq + 1
    const time = Date.now()
    const body = JSON.stringify(payload)
    const hash = link(last?.hash ?? NO_HASH, sequence, time, body)
    if (insert.run(run, sequence, time, dedupeKey, hash, body).changes === 1) {
      return { sequence, hash, duplicate: false }
    }
    const first = known.get(run, dedupeKey)
    return { sequence: first.seq, hash: first.hash, duplicate: true }
  }
  const appendOne = db.transaction(step)
  const appendAll = db.transaction((run, events) =>
    events.map(([payload, dedupeKey]) => step(run, payload, dedupeKey)),
  )
  return {
    appendOnce: async (run, payload, dedupeKey) => appendOne.immediate(run, payload, dedupeKey),
    appendManyOnce: async (run, events) => appendAll.immediate(run, events),
  }
}
