import { createServer as createHttp, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { createClient } from './client.ts'

/** Runs a server with this request listener while `work` runs. */
async function serving(answer: RequestListener, work: (url: string) => Promise<void>): Promise<void> {
  const http = createHttp(answer)
  await new Promise<void>(resolve => http.listen(0, '127.0.0.1', resolve))
  try {
    await work(`http://127.0.0.1:${(http.address() as AddressInfo).port}`)
  } finally {
    http.closeAllConnections()
    await new Promise(resolve => http.close(resolve))
  }
}

const retry = { firstMs: 1, maxMs: 2 }

describe('a client', () => {
  test('retries when a connection breaks within an answer', async () => {
    let asked = 0
    await serving(
      (_, response) => {
        asked++
        response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': 12 })
        if (asked > 2) response.end('{"items":[]}')
        else response.write('{"items', () => response.destroy())
      },
      async url => {
        expect(await createClient({ url, retry }).ledger.fetchAll()).toEqual([])
        expect(asked).toBe(3)
      },
    )
  })

  test('reports an unreachable server with a code and its address', async () => {
    const url = 'http://127.0.0.1:9'
    const client = createClient({ url, retry: { ...retry, retries: 1 } })
    await expect(client.kv.get('run', 'key')).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringContaining(url),
    })
    await expect(client.ready()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })

  test('waits for Retry-After', async () => {
    const waited: number[] = []
    let asked = 0
    await serving(
      (_, response) => {
        response.writeHead(++asked === 1 ? 429 : 200, {
          'Content-Type': 'application/json',
          'Retry-After': '3',
        })
        response.end('{"items":[]}')
      },
      async url => {
        const sleep = async (ms: number): Promise<void> => void waited.push(ms)
        await createClient({ url, retry: { ...retry, sleep } }).ledger.fetchAll()
        expect(waited[0]).toBe(3_000)
      },
    )
  })

  test('recognizes a server that is not ready', async () => {
    await serving(
      (_, response) => response.writeHead(503).end('{"status":"closing"}'),
      async url => {
        expect(await createClient({ url }).ready()).toBe(false)
      },
    )
  })

  test('does not retry the creation of a token', async () => {
    let asked = 0
    await serving(
      (_, response) => {
        asked++
        response.destroy()
      },
      async url => {
        const client = createClient({ url, retry })
        await expect(client.tokens.create({ role: 'reader' })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
        expect(asked).toBe(1)
      },
    )
  })

  test.each([
    { url: 'ftp://example.org' },
    { url: 'example.org' },
    { url: 'http://example.org/?a=1' },
    { url: 'http://example.org/#a' },
    { url: 'http://example.org', timeoutMs: 0 },
    { url: 'http://example.org', token: 'a b' },
    { url: 'http://example.org', tokn: 'a' },
  ])('refuses %j at once', options => {
    expect(() => createClient(options)).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
  })
})
