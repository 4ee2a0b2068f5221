import { CommitQueue } from '../../dist/postgres/commit-queue.js'
import { openPostgres } from '../../dist/postgres.js'
import { ledgerStore } from './annals-ledger.mjs'
import { checkpoints } from './postgres-pool.mjs'

/** The ledger on PostgreSQL through its public API. `conflicts()` counts appends that had to be retried. */
export async function openStore(_folder, { connectionString }) {
  let conflicts = 0
  const { commit } = CommitQueue.prototype
  CommitQueue.prototype.commit = async function (asked) {
    const outcome = await commit.call(this, asked)
    if (outcome.status === 'conflict' && asked.operations.some(({ op }) => op === 'append')) conflicts++
    return outcome
  }
  const db = await openPostgres({ connectionString, tenant: 'acme' })
  return {
    ...ledgerStore(db),
    conflicts: () => conflicts,
    settle: checkpoints(connectionString),
    close: () => db.close(),
  }
}
