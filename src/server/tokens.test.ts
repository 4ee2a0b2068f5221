import { expect, test } from 'vitest'
import { open } from '../annals.ts'
import { TokenStore } from './tokens.ts'

test('a token is valid until it is revoked, and is not stored itself', async () => {
  await using db = await open({ memory: true })
  const tokens = new TokenStore(db)
  const { token, ...record } = await tokens.create({ name: 'ci', tenant: 'acme', role: 'writer' })
  expect(token).toMatch(/^annals_[0-9a-f]{16}_[\w-]{43}$/)
  expect(await tokens.verify(token)).toEqual(record)
  expect(await tokens.list()).toEqual([record])
  const stored = JSON.stringify([
    await db.forTenant('_annals').kv.entries('tokens'),
    await db.forTenant('_annals').events.readRange('tokens', 0, 10),
  ])
  expect(stored).not.toContain(token.slice(24))
  expect(await tokens.revoke(record.id)).toBe(true)
  expect(await tokens.revoke(record.id)).toBe(false)
  expect(await tokens.verify(token)).toBeUndefined()
})

test('a token expires', async () => {
  let now = 1_000
  await using db = await open({ memory: true })
  const tokens = new TokenStore(db, () => now)
  const { token } = await tokens.create({ role: 'reader', ttlMs: 10 })
  now = 1_009
  expect(await tokens.verify(token)).toMatchObject({ role: 'reader', tenant: 'default', expiresAt: 1_010 })
  now = 1_010
  expect(await tokens.verify(token)).toBeUndefined()
})

test('a token of another tenant is neither listed nor revoked', async () => {
  await using db = await open({ memory: true })
  const tokens = new TokenStore(db)
  const { id } = await tokens.create({ tenant: 'acme', role: 'reader' })
  expect(await tokens.list({ tenant: 'other' })).toEqual([])
  expect(await tokens.revoke(id, { tenant: 'other' })).toBe(false)
  expect(await tokens.revoke(id, { tenant: 'acme' })).toBe(true)
})

test.each([
  'annals_0000000000000000_short',
  '',
  'Bearer',
  `annals_0000000000000000_${'a'.repeat(43)}`,
  'x'.repeat(10_000),
])('an invalid token is refused: %s', async text => {
  await using db = await open({ memory: true })
  expect(await new TokenStore(db).verify(text)).toBeUndefined()
})

test("no token can be created for the server's own tenant", async () => {
  await using db = await open({ memory: true })
  const tokens = new TokenStore(db)
  for (const tenant of ['_annals', '_shared', '', 'a\0b']) {
    await expect(tokens.create({ tenant, role: 'admin' })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  }
  await expect(tokens.create({ role: 'owner' as never })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  for (const ttlMs of [0, -1, 1.5, Number.MAX_SAFE_INTEGER]) {
    await expect(tokens.create({ role: 'admin', ttlMs })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  }
})

test('followers are told of a revocation', async () => {
  await using db = await open({ memory: true })
  const tokens = new TokenStore(db)
  const { id } = await tokens.create({ role: 'reader' })
  const stop = new AbortController()
  const heard = (async () => {
    for await (const revoked of tokens.revocations(stop.signal)) return revoked
    return undefined
  })()
  await tokens.revoke(id)
  expect(await heard).toBe(id)
  stop.abort()
})
