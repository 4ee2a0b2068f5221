// One of several processes that append to the same logs. Prints its results as JSON.
import { sha256 } from '../../dist/core/hash.js'
import { openPostgresStorage } from '../../dist/postgres/open.js'

const { connectionString, schema, name, runs, appends, inFlight } = JSON.parse(process.argv[2])
const storage = await openPostgresStorage({ connectionString, schema })
let next = 0
let conflicts = 0
const begunAt = Date.now()
await Promise.all(
  Array.from({ length: inFlight }, async () => {
    while (next < appends) {
      const number = next++
      const body = `${name}-${number}`.padEnd(400, '.')
      const operation = {
        op: 'append',
        scope: `default:default:default:run-${number % runs}`,
        tag: 2,
        body,
        bodyHash: sha256(body),
        dedupe: { key: `${name}-${number}` },
      }
      const outcome = await storage.commit({ operations: [operation] })
      if (outcome.status !== 'committed') conflicts++
    }
  }),
)
const ms = Date.now() - begunAt
await storage.close()
process.stdout.write(JSON.stringify({ conflicts, ms }))
