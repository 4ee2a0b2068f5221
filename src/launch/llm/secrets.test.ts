import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createLlm } from './llm.ts'
import { sseEvent } from './sse.ts'
import type { Fetch } from './transport.ts'

/** Values of an Authorization header. */
const keys = fc
  .string({ unit: fc.constantFrom(...'abcXYZ0189-._~+/='), minLength: 12, maxLength: 60 })
  .filter(key => new Set(key).size > 4)

/** A text around the key, so long that shortening it could cut the key in two. */
const length = fc.oneof(fc.integer({ min: 10, max: 80 }), fc.integer({ min: 430, max: 510 }), fc.nat(2_000))
const around = fc.record({
  before: fc
    .tuple(fc.string({ maxLength: 10 }), length)
    .map(([text, chars]) => `${text}${'x '.repeat(chars)}`.slice(0, chars)),
  after: fc.string({ maxLength: 10 }),
})

const json = (status: number, body: unknown): Response =>
  new Response(JSON.stringify(body), {
    status,
    headers: { 'content-type': 'application/json', 'x-echo': 'x' },
  })

/** Endpoints that echo the key. */
const ENDPOINTS: Readonly<Record<string, (said: string) => Response>> = {
  answer: said =>
    json(200, { choices: [{ message: { content: said, reasoning: [said] }, finish_reason: 'stop' }] }),
  stream: said => {
    const pieces = (said.match(/[\s\S]{1,5}/g) ?? []).map(content =>
      sseEvent({ choices: [{ delta: { content } }] }),
    )
    const end = sseEvent({ choices: [{ delta: {}, finish_reason: 'stop' }] })
    const headers = { 'content-type': 'text/event-stream', 'x-echo': said.replace(/[^\x20-\x7e]/g, ' ') }
    return new Response([...pieces, end].join(''), { headers })
  },
  'broken stream': said =>
    new Response(
      sseEvent({ choices: [{ delta: { content: said } }] }) + sseEvent({ error: { message: said } }),
      {
        headers: { 'content-type': 'text/event-stream' },
      },
    ),
  refusal: said => json(401, { error: { message: said } }),
  'refusal in plain text': said => new Response(said, { status: 400 }),
  'error in an answer': said => json(200, { error: { message: said } }),
  'no JSON': said => new Response(said, { status: 200 }),
  'network error': said => {
    throw new TypeError('fetch failed', { cause: new Error(said) })
  },
}

test.each(Object.keys(ENDPOINTS))(
  'ND9: a key that an endpoint shows (%s) reaches no event, no evidence and no error',
  async endpoint => {
    await fc.assert(
      fc.asyncProperty(keys, around, async (key, { before, after }) => {
        const folder = mkdtempSync(join(tmpdir(), 'annals-secrets-'))
        try {
          const said = `${before}${key}${after}`.toWellFormed()
          const seen: unknown[] = []
          const fetch: Fetch = async () => ENDPOINTS[endpoint](said)
          const llm = createLlm({
            baseUrl: 'http://127.0.0.1:1/v1',
            apiKey: key,
            headers: { 'x-api-key': key },
            folder,
            traceId: '0'.repeat(32),
            fetch,
            retry: { sleep: async () => undefined },
            events: { append: async (...event) => seen.push(event) },
          })
          const messages = [
            { role: 'system', content: said },
            { role: 'user', content: [{ type: 'text', text: said }] },
          ]
          const tools = [{ type: 'function', function: { name: 'f', description: said } }]
          const error: unknown = await llm
            .chat({ model: `m-${key}`, messages, tools, stream: endpoint === 'stream' })
            .then(() => undefined)
            .catch((thrown: unknown) => thrown)
          if (error instanceof Error) {
            seen.push(
              error.message,
              error.stack,
              String(error.cause),
              (error as { details?: unknown }).details,
            )
          }
          const files = readdirSync(join(folder, 'evidence', 'llm')).map(file =>
            readFileSync(join(folder, 'evidence', 'llm', file), 'utf8'),
          )
          const all = JSON.stringify(seen) + files.join('\n')
          // A part of the key must not appear either.
          expect(all).not.toContain(key.slice(0, 10))
          expect(all).not.toContain(key.slice(-10))
          expect(seen).toHaveLength(error === undefined ? 2 : 6)
        } finally {
          rmSync(folder, { recursive: true })
        }
      }),
      { numRuns: 50 },
    )
  },
)
