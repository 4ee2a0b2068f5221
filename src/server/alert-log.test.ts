import { expect, test } from 'vitest'
import { open } from '../annals.ts'
import { newEvent } from '../testing/ledger-suite/events.ts'
import { createServer } from './server.ts'

test('the server logs each new alert of active tenants once, with the tenant', async () => {
  await using db = await open({ memory: true })
  await db.ledger.appendEvent(newEvent({ eventType: 'RunPaused', runId: 'earlier' }))
  await db.ledger.projectSnapshot('earlier')
  const alerts: { tenant: string; alert: { runId: string; code: string } }[] = []
  let heard = (): void => {}
  const server = createServer(db, {
    port: 0,
    log: line => {
      const parsed = JSON.parse(line)
      if (parsed.alert === undefined) return
      alerts.push(parsed)
      heard()
    },
  })
  const reach = async (count: number): Promise<void> => {
    while (alerts.length < count) {
      await new Promise<void>(resolve => {
        heard = resolve
      })
    }
  }
  await db.ledger.appendEvent(newEvent({ eventType: 'RunPaused', runId: 'own' }))
  await reach(1)
  // The server opens a tenant's ledger at its first request.
  const { token } = await server.tokens.create({ tenant: 'acme', role: 'writer' })
  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    server.fetch(
      new Request(`http://localhost${path}`, {
        ...init,
        headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      }),
    )
  expect((await ask('/v1/runs')).status).toBe(200)
  expect((await ask('/v1/runs')).status).toBe(200)
  const body = JSON.stringify(newEvent({ eventType: 'RunResumed', runId: 'theirs' }))
  expect((await ask('/v1/events', { method: 'POST', body })).status).toBe(200)
  await reach(2)
  await db.ledger.appendEvent(newEvent({ eventType: 'RunResumed', runId: 'last' }))
  await reach(3)
  expect(alerts.map(({ tenant, alert }) => [tenant, alert.runId, alert.code])).toEqual([
    ['default', 'own', 'INVALID_TRANSITION'],
    ['acme', 'theirs', 'INVALID_TRANSITION'],
    ['default', 'last', 'INVALID_TRANSITION'],
  ])
  await server.close()
})

test('alerts of many tenants are followed without a process warning', async () => {
  const warnings: Error[] = []
  const note = (warning: Error): void => void warnings.push(warning)
  process.on('warning', note)
  try {
    await using db = await open({ memory: true, ledger: { onAlert: () => undefined } })
    const server = createServer(db, { port: 0, log: () => undefined })
    for (let i = 0; i < 12; i++) {
      const { token } = await server.tokens.create({ tenant: `tenant-${i}`, role: 'reader' })
      const headers = { Authorization: `Bearer ${token}` }
      const request = new Request('http://localhost/v1/alerts', { headers })
      expect((await server.fetch(request)).status).toBe(200)
    }
    // Node emits a warning in a later turn of the event loop.
    await new Promise(resolve => setImmediate(resolve))
    expect(warnings).toEqual([])
    await server.close()
  } finally {
    process.off('warning', note)
  }
})
