import { link, NO_HASH } from './chain.mjs'
import { checkpoints, openPool } from './postgres-pool.mjs'

const CLIENTS = 32
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS steps (
    run text NOT NULL, seq bigint NOT NULL, time bigint NOT NULL,
    dedupe_key text NOT NULL, prev_hash text NOT NULL, hash text NOT NULL, body text NOT NULL,
    PRIMARY KEY (run, seq), UNIQUE (run, dedupe_key)
  )`
const INSERT = {
  name: 'insert',
  text: `INSERT INTO steps VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (run, dedupe_key) DO NOTHING`,
}
const KNOWN = { name: 'known', text: 'SELECT seq, hash FROM steps WHERE run = $1 AND dedupe_key = $2' }

/**
 * Prepared single-row INSERTs on a pool of clients, the least that a program without an event store can do. It keeps the ends
 * of the hash chains in memory, which only a single writer can do and which saves a round trip.
 */
export async function openStore(_folder, { connectionString }) {
  const pool = openPool(connectionString, CLIENTS)
  await pool.query(SCHEMA)
  const heads = new Map()

  async function appendOnce(run, payload, dedupeKey) {
    const head = heads.get(run) ?? { length: 0, hash: NO_HASH }
    const sequence = head.length
    const time = Date.now()
    const body = JSON.stringify(payload)
    const hash = link(head.hash, sequence, time, body)
    heads.set(run, { length: sequence + 1, hash })
    const values = [run, sequence, time, dedupeKey, head.hash, hash, body]
    const { rowCount } = await pool.query({ ...INSERT, values })
    if (rowCount === 1) return { sequence, hash, duplicate: false }
    heads.set(run, head)
    const { rows } = await pool.query({ ...KNOWN, values: [run, dedupeKey] })
    return { sequence: Number(rows[0].seq), hash: rows[0].hash, duplicate: true }
  }

  return {
    appendOnce,
    async appendManyOnce(run, events) {
      const answers = []
      for (const [payload, dedupeKey] of events) answers.push(await appendOnce(run, payload, dedupeKey))
      return answers
    },
    settle: checkpoints(connectionString),
    close: () => pool.end(),
  }
}
