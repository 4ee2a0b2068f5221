import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { publicUrl, REDACTED, Redactor, secretsIn } from './redaction.ts'

/** Each secret with a text in which it is found. The secrets are invented. */
const FOUND: readonly (readonly [secret: string, text: string])[] = [
  ['sk-proj-abc123def456ghi789', 'my key is sk-proj-abc123def456ghi789.'],
  ['sk-ant-api03-AbCdEf0123456789', '"sk-ant-api03-AbCdEf0123456789"'],
  ['sk-abcd************wxyz', 'Incorrect API key provided: sk-abcd************wxyz'],
  ['ghp_0123456789abcdefghijABCDEFGHIJ012345', 'git clone with ghp_0123456789abcdefghijABCDEFGHIJ012345'],
  ['github_pat_11ABCDEFG0123456789_abcdefghij', 'github_pat_11ABCDEFG0123456789_abcdefghij'],
  ['glpat-abcdefghij0123456789', 'glpat-abcdefghij0123456789'],
  ['xoxb-123456789012-abcdefABCDEF', 'slack: xoxb-123456789012-abcdefABCDEF'],
  ['AKIAIOSFODNN7EXAMPLE', 'aws AKIAIOSFODNN7EXAMPLE'],
  ['AIzaSyA0123456789abcdefghijklmnopqrstuv', 'AIzaSyA0123456789abcdefghijklmnopqrstuv'],
  ['hf_abcdefghijklmnopqrstuvwxyz', 'hf_abcdefghijklmnopqrstuvwxyz'],
  [
    'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl',
    'jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl',
  ],
  ['c29tZTpzZWNyZXQ=', 'Authorization: Basic c29tZTpzZWNyZXQ='],
  ['opaqueopaque', '"authorization": "Bearer opaqueopaque"'],
  ['abc123.def456', 'curl -H "Bearer abc123.def456"'],
  ['me:hunter2', 'postgres://me:hunter2@db.example/x'],
  ['s3cr3tvalue', 'GET /v1?x=1&api_key=s3cr3tvalue&y=2'],
  ['hunter2hunter2', '{"password": "hunter2hunter2"}'],
  ['hunter2hunter2', '{\\"api_key\\":\\"hunter2hunter2\\"}'],
  ['abcdefghij', 'export OPENAI_API_KEY=abcdefghij'],
  ['MIIEvQIBADANBg', '-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----'],
  ['MIIEvQIBADANBg', '-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBg and cut off'],
]

/** Texts that resemble secrets and must not change. */
const KEPT: readonly string[] = [
  'the risk-assessment-document and sk-learn-tutorials',
  'max_tokens=100, tokens: 5, a token: "x"',
  'bearer of good news, bearer certificates',
  'Basic understanding of passwords',
  'https://example.com/a:b@c?q=1#key',
  'a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c1d2e3f4a5b6c7d8e9f0a1b2',
  '550e8400-e29b-41d4-a716-446655440000',
]

describe('redaction', () => {
  test.each(FOUND)('removes %s', (secret, text) => {
    const redactor = new Redactor()
    const clean = redactor.text(text)
    expect(clean).not.toContain(secret)
    expect(clean).toContain(REDACTED)
    expect(redactor.count).toBe(1)
  })

  test.each(KEPT)('keeps %s', text => {
    expect(new Redactor().text(text)).toBe(text)
  })

  test('a known key is removed everywhere, in every encoding', () => {
    const key = 'my "quoted" k/y'
    const redactor = new Redactor([key])
    const text = `${key} ${JSON.stringify({ key })} ?k=${encodeURIComponent(key)}`
    expect(redactor.text(text)).toBe(`${REDACTED} {"key":"${REDACTED}"} ?k=${REDACTED}`)
  })

  test('short words passed as keys to local servers are not secrets', () => {
    expect(new Redactor(['ollama', undefined]).text('ollama is a llama')).toBe('ollama is a llama')
  })

  test('members and headers with secret names are removed; logprobs and limits stay', () => {
    const redactor = new Redactor()
    const value = {
      apiKey: 'x',
      client_secret: 'y',
      token: 'the',
      max_tokens: 5,
      nested: [{ password: 'z' }],
    }
    expect(redactor.value(value)).toEqual({
      apiKey: REDACTED,
      client_secret: REDACTED,
      token: 'the',
      max_tokens: 5,
      nested: [{ password: REDACTED }],
    })
    const headers: [string, string][] = [
      ['authorization', 'Bearer x'],
      ['x-api-key', 'y'],
      ['set-cookie', 'z'],
      ['x-ratelimit-remaining-tokens', '100'],
      ['content-type', 'application/json'],
    ]
    expect(redactor.headers(headers)).toEqual({
      authorization: REDACTED,
      'x-api-key': REDACTED,
      'set-cookie': REDACTED,
      'x-ratelimit-remaining-tokens': '100',
      'content-type': 'application/json',
    })
    expect(secretsIn(headers)).toEqual(['Bearer x', 'x', 'y', 'y', 'z', 'z'])
  })

  test('a member called __proto__ stays a member', () => {
    const clean = new Redactor().value(JSON.parse('{"__proto__": {"a": "b"}}')) as object
    expect(Object.getPrototypeOf(clean)).toBe(Object.prototype)
    expect(JSON.stringify(clean)).toBe('{"__proto__":{"a":"b"}}')
  })

  test('redacting twice changes nothing more', () => {
    const piece = fc.oneof(fc.constantFrom(...FOUND.map(([, text]) => text)), fc.string())
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 6 }), pieces => {
        const once = new Redactor(['known-secret']).text(pieces.join(' '))
        const again = new Redactor(['known-secret'])
        expect(again.text(once)).toBe(once)
        expect(again.count).toBe(0)
      }),
    )
  })

  test.each([
    'eyJ-',
    'sk-',
    '-----BEGIN PRIVATE KEY-----',
    'a://',
    'a.',
    'bearer ',
    'authorization: ',
    'KEY=',
    'password":"',
    '&key=',
  ])('a long text of %s is redacted quickly', piece => {
    const text = piece.repeat(1_000_000 / piece.length)
    const start = performance.now()
    new Redactor().text(text)
    expect(performance.now() - start).toBeLessThan(5_000)
  })

  test('a URL is shown without user, password and query', () => {
    expect(publicUrl('https://me:secret@host:8/v1/?key=x#y')).toBe('https://host:8/v1')
  })
})
