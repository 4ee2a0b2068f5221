import { open } from '../../dist/index.js'
import { createServer } from '../../dist/server.js'

/** A server in its own process: `node http-server.mjs <folder> <durability>`. */
const [path, durability] = process.argv.slice(2)
const db = await open({ path, durability })
const server = createServer(db, { port: 0 })
const { port } = await server.listen()
process.send({ port })
process.on('message', async ({ settle }) => {
  if (settle) await db.checkpoint()
  process.send({ settled: true })
})
process.on('disconnect', () => process.exit(0))
