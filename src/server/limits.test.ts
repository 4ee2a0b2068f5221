import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Annals, open } from '../annals.ts'
import { newEvent } from '../testing/ledger-suite/events.ts'
import { createServer, type Server } from './server.ts'

const MIB = 1024 * 1024
let db: Annals
let server: Server
beforeAll(async () => {
  db = await open({ memory: true })
  server = createServer(db)
})
afterAll(() => db.close())

async function ask(
  path: string,
  init: RequestInit = {},
): Promise<{ status: number; code?: string; body: unknown }> {
  const answer = await server.fetch(new Request(`http://localhost${path}`, init))
  const text = await answer.text()
  const body: unknown = text === '' ? undefined : JSON.parse(text)
  return { status: answer.status, ...(body as { code?: string }), body }
}

const json = (method: string, body: unknown): RequestInit => ({
  method,
  headers: { 'Content-Type': 'application/json' },
  body: typeof body === 'string' ? body : JSON.stringify(body),
})

function noteOf(payload: object, logicalAttemptId = 1): object {
  return { ...newEvent({ eventType: 'Noted', runId: 'run', logicalAttemptId }), payload }
}

/** An object whose canonical JSON has this many bytes. */
const payloadOf = (bytes: number): object => ({ a: 'x'.repeat(bytes - 8) })
const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth)

describe('limits of bodies', () => {
  test('LD9: a payload of 1 MiB is accepted with its envelope, and one more byte is refused', async () => {
    expect(await ask('/v1/events', json('POST', noteOf(payloadOf(MIB), 1)))).toMatchObject({ status: 200 })
    expect(await ask('/v1/events', json('POST', noteOf(payloadOf(MIB + 1), 2)))).toMatchObject({
      status: 422,
      code: 'INVALID_ENVELOPE',
    })
    expect(await ask('/v1/events', json('POST', noteOf(payloadOf(7 * MIB), 3)))).toMatchObject({
      status: 413,
      code: 'TOO_LARGE',
    })
    const escaped = JSON.stringify(noteOf(payloadOf(MIB), 4)).replaceAll('x', '\\u0078')
    expect(await ask('/v1/events', json('POST', escaped))).toMatchObject({ status: 200 })
  })

  test('a batch of 8 MiB is accepted, and one more byte is refused', async () => {
    const events = Array.from({ length: 7 }, (_, i) => noteOf(payloadOf(MIB), 10 + i))
    const text = JSON.stringify([...events, noteOf(payloadOf(1_000), 20)])
    const exact = text + ' '.repeat(8 * MIB - text.length)
    expect(await ask('/v1/events/batch', json('POST', exact))).toMatchObject({ status: 200 })
    expect(await ask('/v1/events/batch', json('POST', `${exact} `))).toMatchObject({ status: 413 })
  })

  test('P17: a value of 16 MiB is accepted, and one more byte is refused', async () => {
    const text = JSON.stringify('x'.repeat(16 * MIB - 2))
    expect(await ask('/v1/runs/run/kv/large', json('PUT', text))).toMatchObject({ status: 200 })
    expect(await db.kv.get('run', 'large')).toHaveLength(16 * MIB - 2)
    expect(await ask('/v1/runs/run/kv/large', json('PUT', `${text} `))).toMatchObject({ status: 413 })
    const bytes = {
      method: 'PUT',
      headers: { 'Content-Type': 'application/octet-stream' },
      body: new Uint8Array(12 * MIB - 16).fill(7),
    }
    expect(await ask('/v1/runs/run/cells/large', bytes)).toMatchObject({ status: 200 })
    const answer = await server.fetch(new Request('http://localhost/v1/runs/run/kv/large'))
    expect((await answer.text()).length).toBe(16 * MIB)
  })

  test('a body without a length is refused once it is too long', async () => {
    let sent = 0
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        sent += MIB
        if (sent > 1_000 * MIB) controller.close()
        else controller.enqueue(new Uint8Array(MIB).fill(0x20))
      },
    })
    const headers = { 'Content-Type': 'application/json' }
    const init = { method: 'POST', headers, body, duplex: 'half' } as RequestInit
    expect(await ask('/v1/events', init)).toMatchObject({ status: 413 })
    expect(sent).toBeLessThan(16 * MIB)
  })

  test('over a socket, a body that is too long gets a 413, and the next request is served', async () => {
    const listening = createServer(db, { port: 0 })
    const { url, port } = await listening.listen()
    for (const framing of [`Content-Length: ${20 * MIB}\r\n\r\n`, 'Transfer-Encoding: chunked\r\n\r\n']) {
      const answer = await new Promise<string>((resolve, reject) => {
        let text = ''
        const socket = connect(port, '127.0.0.1', () => {
          socket.write(
            `POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${framing}`,
          )
          const chunk = ' '.repeat(64 * 1024)
          const send = (): void => {
            if (!socket.writable) return
            socket.write(framing.includes('chunked') ? `10000\r\n${chunk}\r\n` : chunk, () =>
              setImmediate(send),
            )
          }
          send()
        })
        socket.on('data', data => {
          text += data
          if (!text.includes('TOO_LARGE')) return
          socket.destroy()
          resolve(text)
        })
        socket.on('error', reject)
        socket.on('close', () => reject(new Error(`closed: ${text}`)))
      })
      expect(answer).toMatch(/^HTTP\/1\.1 413 /)
    }
    expect((await fetch(`${url}/v1/runs`)).status).toBe(200)
    await listening.close()
  })

  test('a large answer is split into pages with next', async () => {
    const events = Array.from({ length: 12 }, (_, i) => noteOf(payloadOf(MIB), 100 + i))
    for (const event of events) await ask('/v1/events', json('POST', event))
    const seen: number[] = []
    let pages = 0
    for (let afterSeq: number | undefined = 0; afterSeq !== undefined; pages++) {
      const { body } = await ask(`/v1/runs/run/events?limit=10000&afterSeq=${afterSeq}`)
      const page = body as { events: { runSeq: number }[]; next?: number }
      expect(JSON.stringify(page).length).toBeLessThan(10 * MIB)
      seen.push(...page.events.map(({ runSeq }) => runSeq))
      afterSeq = page.next
    }
    expect(pages).toBeGreaterThan(1)
    expect(seen).toEqual(seen.map((_, i) => i + 1))
  })
})

describe('JSON beyond the standard', () => {
  test.each([
    ['deeper than anything that can be stored', nested(69)],
    ['so deep that it would overflow', nested(500_000)],
    ['a number that is infinite', '1e400'],
    ['a whole number that would be rounded', '[9007199254740993]'],
    ['the same with a fraction of nothing', '[12345678901234567890.0]'],
    ['the same with an exponent of nothing', '[9007199254740993e0]'],
    ['a lone surrogate', '"\\ud800"'],
    ['no JSON', '{'],
    ['nothing', ''],
    ['a string that stands for nothing', '"\\u0000x"'],
  ])('%s is refused', async (_, text) => {
    const answer = await ask('/v1/runs/run/kv/key', json('PUT', text))
    expect(answer).toMatchObject({ status: 400, code: 'INVALID_ARGUMENT' })
    expect(await db.kv.exists('run', 'key')).toBe(false)
  })

  test('64 nested containers are accepted, and 65 are refused', async () => {
    expect(await ask('/v1/runs/run/kv/deep', json('PUT', nested(64)))).toMatchObject({ status: 200 })
    expect(await ask('/v1/runs/run/kv/deeper', json('PUT', nested(65)))).toMatchObject({ status: 400 })
  })

  test('numbers in strings and exact numbers are accepted', async () => {
    for (const text of [
      '"9007199254740993"',
      '"\\"9007199254740993"',
      '[9007199254740992,0.1,1e21,-1e-400]',
    ]) {
      expect(await ask('/v1/runs/run/kv/number', json('PUT', text))).toMatchObject({ status: 200 })
    }
  })

  test('__proto__ is an ordinary key', async () => {
    const text = '{"__proto__":{"polluted":1}}'
    expect(await ask('/v1/runs/run/kv/proto', json('PUT', text))).toMatchObject({ status: 200 })
    const answer = await server.fetch(new Request('http://localhost/v1/runs/run/kv/proto'))
    expect(await answer.text()).toBe(text)
  })

  test.each([
    ['text', 'text/plain', 'x', 415],
    ['another charset', 'application/json; charset=latin1', '1', 415],
    ['UTF-8', 'application/json; charset=UTF-8', '1', 200],
    ['what is not UTF-8', 'application/json', new Uint8Array([0x22, 0xff, 0x22]), 400],
  ])('%s', async (_, type, body, status) => {
    const init = { method: 'PUT', headers: { 'Content-Type': type }, body }
    expect(await ask('/v1/runs/run/kv/typed', init)).toMatchObject({ status })
  })

  test('a compressed body is refused, because it could have any size', async () => {
    const headers = { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' }
    expect(await ask('/v1/runs/run/kv/zip', { method: 'PUT', headers, body: '1' })).toMatchObject({
      status: 415,
    })
  })
})

describe('ids in paths', () => {
  test.each([
    'a/b',
    '..',
    '.',
    '~',
    '~..',
    '%2f',
    '%',
    '?',
    '#',
    'a b',
    'ä🚀',
    '\u0001',
    'a\\b',
    '__proto__',
    'a:b',
    '%00',
  ])('the key %j is written and read as it is', async key => {
    const mark = /^(\.{1,2}$|~)/.test(key) ? '~' : ''
    const path = `/v1/runs/run/kv/${mark}${encodeURIComponent(key)}`
    expect(await ask(path, json('PUT', JSON.stringify(key)))).toMatchObject({ status: 200, body: { key } })
    expect(await db.kv.get('run', key)).toBe(key)
    expect(await ask(path)).toMatchObject({ body: key })
  })

  test.each(['%', '%zz', '%ff', '%00', '%ed%a0%80'])('the segment %s is refused', async segment => {
    expect(await ask(`/v1/runs/run/kv/${segment}`)).toMatchObject({ status: 400, code: 'INVALID_ARGUMENT' })
  })
})
