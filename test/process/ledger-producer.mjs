// A producer without a store. Its event ids are in a file, and it sends its events to the parent process as messages.
// It can kill itself right after an id is written.
//
//   node ledger-producer.mjs <registry file> <run id> <die after the n-th claim>
import { createProducer, openFileRegistry } from '../../dist/index.js'

const [path, runId, dieAfter] = process.argv.slice(2)
const waiting = new Map()
let calls = 0
process.on('message', ({ call, result }) => {
  waiting.get(call)(result)
  waiting.delete(call)
})
const remote = (method, ...args) =>
  new Promise(resolve => {
    waiting.set(++calls, resolve)
    process.send({ call: calls, method, args })
  })

const file = await openFileRegistry(path)
let claims = 0
const registry = {
  async claim(...args) {
    const claimed = await file.claim(...args)
    if (++claims === Number(dieAfter)) process.kill(process.pid, 'SIGKILL')
    return claimed
  },
  adopt: (...args) => file.adopt(...args),
}
const producer = createProducer({
  store: {
    appendEvent: event => remote('appendEvent', event),
    fetchEvents: (id, options) => remote('fetchEvents', id, options),
  },
  registry,
  runId,
  tenantId: 'acme',
  projectId: 'shop',
  environmentId: 'test',
  planId: 'nightly',
  planVersion: '3',
  replay: true,
})
await producer.runStarted()
for (const step of ['fetch', 'parse', 'store']) {
  await producer.stepStarted(step)
  await producer.stepCompleted(step)
}
await producer.pause()
await producer.resume()
await producer.runCompleted()
await file.close()
process.disconnect()
