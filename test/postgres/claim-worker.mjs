// One of several processes that claim entries from the same queue until it is empty. Prints its results as JSON.
import { openPostgresStorage } from '../../dist/postgres/open.js'

const { connectionString, schema, name, scope, workers } = JSON.parse(process.argv[2])
const storage = await openPostgresStorage({ connectionString, schema })
const tag = 1
const ranges = [{ scope, tag, from: 'ready/', to: 'ready0', limit: 1 }]
const claim = (_, [[first]]) => {
  if (first === undefined) return { operations: [], result: undefined }
  const key = `taken/${first.key.slice('ready/'.length)}`
  const operations = [
    { op: 'delete', scope, tag, key: first.key },
    { op: 'put', scope, tag, key, value: name },
  ]
  return { operations, result: key }
}
await storage.get(scope, tag, 'ready')
process.stdout.write('ready\n')
await new Promise(resolve => process.stdin.once('data', resolve))
process.stdin.destroy()
const claimed = []
const begunAt = Date.now()
await Promise.all(
  Array.from({ length: workers }, async () => {
    for (;;) {
      const { result } = await storage.update([], claim, { ranges })
      if (result === undefined) return
      claimed.push(result)
    }
  }),
)
const ms = Date.now() - begunAt
await storage.close()
process.stdout.write(`${JSON.stringify({ claimed, ms })}\n`)
