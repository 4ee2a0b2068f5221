import { hash } from 'node:crypto'
import { openPostgresStorage } from '../../dist/postgres/open.js'
import { checkpoints } from './postgres-pool.mjs'

const EVENTS = 2

/** The storage engine on PostgreSQL alone: appends with a dedupe key, without the ledger. */
export async function openStore(_folder, { connectionString }) {
  const storage = await openPostgresStorage({ connectionString })
  const settle = checkpoints(connectionString)

  function append(run, payload, dedupeKey) {
    const body = JSON.stringify(payload)
    const bodyHash = hash('sha256', body, 'latin1')
    return {
      op: 'append',
      scope: `acme:shop:${run}`,
      tag: EVENTS,
      body,
      bodyHash,
      dedupe: { key: dedupeKey },
    }
  }

  return {
    async appendOnce(run, payload, dedupeKey) {
      return (await storage.commit({ operations: [append(run, payload, dedupeKey)] })).appended[0]
    },
    async appendManyOnce(run, events) {
      const operations = events.map(([payload, dedupeKey]) => append(run, payload, dedupeKey))
      return (await storage.commit({ operations })).appended
    },
    settle,
    close: () => storage.close(),
  }
}
