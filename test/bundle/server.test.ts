import { afterEach, beforeEach, expect, test } from 'vitest'
import { createClient } from '../../src/client.ts'
import { type Annals, open, verifyBundle } from '../../src/index.ts'
import { createServer, type Server } from '../../src/server.ts'
import { addRun, bytesOf } from './bundles.ts'

let db: Annals
let server: Server
let url = ''
beforeEach(async () => {
  db = await open({ memory: true })
  server = createServer(db, { port: 0 })
  url = (await server.listen()).url
})
afterEach(async () => {
  await server.close()
  await db.close()
})

test('a server exports the same bundle as its database, and another server imports it', async () => {
  await addRun(db, 'run/ü 1', 40)
  const client = createClient({ url })
  const bundle = await bytesOf(client.exportRun('run/ü 1'))
  expect(bundle).toEqual(await bytesOf(db.exportRun('run/ü 1')))
  expect(await verifyBundle(client.exportRun('run/ü 1'))).toMatchObject({ isValid: true, records: 162 })
  await using other = await open({ memory: true })
  await other.importRun(() => client.exportRun('run/ü 1'))
  expect(await bytesOf(other.exportRun('run/ü 1'))).toEqual(bundle)
})

test('an unknown run, or one of another tenant, has no bundle', async () => {
  await addRun(db.forTenant('acme'), 'run-1')
  const { token } = await server.tokens.create({ role: 'reader', tenant: 'acme' })
  expect(await verifyBundle(createClient({ url, token }).exportRun('run-1'))).toMatchObject({
    tenant: 'acme',
  })
  await expect(bytesOf(createClient({ url }).exportRun('run-1'))).rejects.toMatchObject({
    code: 'RUN_NOT_FOUND',
  })
})

test('a reader that stops early leaves nothing open', async () => {
  await addRun(db, 'run-1', 300)
  for await (const chunk of createClient({ url }).exportRun('run-1')) {
    expect(chunk.length).toBeGreaterThan(0)
    break
  }
  // If the export were still open, closing would wait until its timeout.
  const since = performance.now()
  await server.close()
  expect(performance.now() - since).toBeLessThan(5_000)
})
