import { open } from '../../dist/index.js'
import { createServer } from '../../dist/server.js'

/** A server in a separate process: `node server-process.mjs <folder> <port> [options as JSON]`. Prints its URL. */
const [path, port, options = '{}'] = process.argv.slice(2)

const db = await open({ path })
const server = createServer(db, { port: Number(port), ...JSON.parse(options) })
const { url } = await server.listen()
process.stdout.write(`${url}\n`)
// Exits when the parent process is gone.
process.stdin.resume()
process.stdin.on('end', () => process.exit(0))
process.on('SIGTERM', async () => {
  await server.close()
  await db.close()
  process.exit(0)
})
