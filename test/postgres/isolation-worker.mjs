// One of several processes that write one history: prints its part of it as JSON.
import { Database } from '../../dist/engine/database.js'
import { openPostgresStorage } from '../../dist/postgres/open.js'
import { runListAppend } from '../../temp/programs/test/isolation/list-append-workload.js'

const { connectionString, schema, name, seed, transactions } = JSON.parse(process.argv[2])
const storage = await openPostgresStorage({ connectionString, schema, snapshotConnections: 8 })
const records = await runListAppend(new Database(storage), {
  seed,
  transactions,
  clients: 8,
  name,
  // One clock for all processes of a machine.
  order: () => Number(process.hrtime.bigint()),
})
await storage.close()
// Others are still at work: what this one read last is not the end.
process.stdout.write(JSON.stringify(records.map(({ isFinal, ...record }) => record)))
