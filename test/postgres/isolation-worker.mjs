// One of several processes that write one history. Prints its part as JSON.
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
  // A clock that all processes of the machine share.
  order: () => Number(process.hrtime.bigint()),
})
await storage.close()
// Other processes are still writing, so the last read of this one is not final.
process.stdout.write(JSON.stringify(records.map(({ isFinal, ...record }) => record)))
