import { Committer } from '../../dist/postgres/committer.js'
import { openPostgres } from '../../dist/postgres.js'
import { ledgerStore } from './annals-ledger.mjs'
import { checkpoints } from './postgres-pool.mjs'

/** The ledger on PostgreSQL as its users have it. `conflicts()` counts commits that had to be tried again. */
export async function openStore(_folder, { connectionString }) {
  let conflicts = 0
  const { commit } = Committer.prototype
  Committer.prototype.commit = async function (...args) {
    const outcome = await commit.apply(this, args)
    if (outcome.status === 'conflict') conflicts++
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
