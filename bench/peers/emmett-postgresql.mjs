import { getPostgreSQLEventStore } from '@event-driven-io/emmett-postgresql'
import { link, NO_HASH } from './chain.mjs'
import { checkpoints, openPool } from './postgres-pool.mjs'

const CLIENTS = 32

/**
 * Emmett in its own schema, where (stream, position) is unique. It has neither hash chains nor keys, so both go into the
 * event's metadata, and the program remembers which keys it sent. That is less work than the others do. Two concurrent
 * appends to a stream would conflict, so the appends of one run wait for each other.
 */
export async function openStore(_folder, { connectionString }) {
  const pool = openPool(connectionString, CLIENTS)
  const store = getPostgreSQLEventStore(connectionString, { connectionOptions: { pool } })
  await store.schema.migrate()
  const runs = new Map()

  async function append(run, payload, dedupeKey) {
    const stream = runs.get(run)
    const known = stream.known.get(dedupeKey)
    if (known !== undefined) return { ...known, duplicate: true }
    const hash = link(stream.hash, stream.known.size, Date.now(), JSON.stringify(payload))
    const event = { type: 'tool_call', data: payload, metadata: { dedupeKey, prevHash: stream.hash, hash } }
    const { nextExpectedStreamVersion } = await store.appendToStream(run, [event])
    const answer = { sequence: Number(nextExpectedStreamVersion) - 1, hash, duplicate: false }
    stream.hash = hash
    stream.known.set(dedupeKey, answer)
    return answer
  }

  function appendOnce(run, payload, dedupeKey) {
    if (!runs.has(run)) runs.set(run, { last: Promise.resolve(), hash: NO_HASH, known: new Map() })
    const stream = runs.get(run)
    stream.last = stream.last.then(() => append(run, payload, dedupeKey))
    return stream.last
  }

  return {
    appendOnce,
    appendManyOnce: (run, events) => Promise.all(events.map(event => appendOnce(run, ...event))),
    settle: checkpoints(connectionString),
    async close() {
      await store.close()
      await pool.end()
    },
  }
}
