import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { retryAfterMs } from '../../telemetry/retry-after.ts'
import { type ChatBody, checkChatBody, hashesOf, withoutUndefined } from './chat-request.ts'
import { difference, nearestRequest } from './nearest-request.ts'
import { checkPrices, costUsd, LIST_PRICES } from './prices.ts'

const BODY: ChatBody = {
  model: 'm',
  messages: [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hello' },
  ],
}

const json = fc.jsonValue({ maxDepth: 3 })
const member = fc.string({ minLength: 1 }).filter(name => name !== '__proto__')

describe('ND9: the hashes of a request', () => {
  test('ND9: never change, because recorded answers are found by them', () => {
    expect(hashesOf(BODY)).toEqual({
      promptHash: '0345c4dba35696d85d5e22ac4dbbf203fa83500989410be0304b402bf9c34877',
      inputHash: 'e014f1903d6963a9551efad49f06337d73ae3c51146d81fcf052d081fbafc260',
      toolSchemaHash: '4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945',
      cacheKey: '861671578e3e11a7720e81fb358c101e49ec6e9c550acdc628a69b2b24deceac',
    })
  })

  test('ND9: each part of a request changes its own hash', () => {
    const base = hashesOf(BODY)
    const prompt = hashesOf({
      ...BODY,
      messages: [{ role: 'system', content: 'Be long.' }, BODY.messages[1]],
    })
    expect([prompt.promptHash === base.promptHash, prompt.inputHash === base.inputHash]).toEqual([
      false,
      true,
    ])
    const input = hashesOf({ ...BODY, temperature: 1 })
    expect([input.promptHash === base.promptHash, input.inputHash === base.inputHash]).toEqual([true, false])
    const tools = hashesOf({ ...BODY, tools: [{ type: 'function' }] })
    expect([tools.inputHash === base.inputHash, tools.toolSchemaHash === base.toolSchemaHash]).toEqual([
      true,
      false,
    ])
    for (const other of [prompt, input, tools, hashesOf({ ...BODY, model: 'n' })]) {
      expect(other.cacheKey).not.toBe(base.cacheKey)
    }
  })

  test('ND9: delivery options and null members do not change the hashes', () => {
    const travelling = {
      stream: true,
      stream_options: { include_usage: true },
      user: 'u',
      temperature: null,
      tools: null,
    }
    expect(hashesOf({ ...BODY, ...travelling })).toEqual(hashesOf(BODY))
  })

  test('ND9: moving a prompt message makes another request', () => {
    const moved = { ...BODY, messages: BODY.messages.toReversed() }
    expect(hashesOf(moved).cacheKey).not.toBe(hashesOf(BODY).cacheKey)
  })

  test('ND9: any change but the order of members changes the hashes', () => {
    fc.assert(
      fc.property(fc.dictionary(member, json, { maxKeys: 5 }), member, json, (rest, name, value) => {
        const { model: _, messages: __, tools: ___, ...parameters } = rest
        const body = { ...parameters, ...BODY } as ChatBody
        const turned = Object.fromEntries(Object.entries(body).reverse()) as unknown as ChatBody
        expect(hashesOf(turned)).toEqual(hashesOf(body))
        const changed = { ...body, [`x_${name}`]: [value] }
        expect(hashesOf(changed).cacheKey).not.toBe(hashesOf(body).cacheKey)
      }),
    )
  })

  test.each([
    [null, /not a JSON object/],
    [[], /not a JSON object/],
    [{ messages: BODY.messages }, /no model/],
    [{ model: 'm', messages: 'x' }, /no messages/],
    [{ model: 'm', messages: [null] }, /messages\[0\]/],
    [{ model: 'm', messages: [{}] }, /without a role/],
    [{ ...BODY, tools: {} }, /tools/],
    [{ ...BODY, x: Number.NaN }, /NaN/],
    [{ ...BODY, messages: [{ role: 'user', content: '\udc00' }] }, /surrogate/],
    [
      JSON.parse(`{"model":"m","messages":[{"role":"user","content":${'['.repeat(99)}${']'.repeat(99)}}]}`),
      /nested/,
    ],
  ])('an invalid request is refused: %#', (value, why) => {
    expect(() => checkChatBody(value)).toThrow(why)
  })

  test('undefined members are left out, as JSON leaves them out', () => {
    const loose = { a: undefined, b: [{ c: undefined, d: 1 }], ['__proto__']: { e: undefined } }
    expect(withoutUndefined(loose)).toEqual({ b: [{ d: 1 }], ['__proto__']: {} })
  })
})

describe('the nearest request', () => {
  test('says in words what differs', () => {
    const long = `${'The same beginning. '.repeat(5)}`
    const recorded = { ...BODY, seed: 1, messages: [{ role: 'user', content: `${long}one` }] }
    const asked = { ...BODY, temperature: 0, messages: [{ role: 'user', content: `${long}two` }] }
    const { words } = difference(recorded, asked)
    expect(words).toEqual([
      'messages[0].content, from character 101: recorded "…eginning. one", asked "…eginning. two"',
      'seed: recorded 1, not asked',
      'temperature: not recorded, asked 0',
    ])
  })

  test('is itself at distance 0, and never farther than another', () => {
    fc.assert(
      fc.property(fc.array(json, { minLength: 1, maxLength: 5 }), json, (recorded, asked) => {
        const found = nearestRequest(recorded, value => value, asked)!
        for (const value of recorded) {
          expect(found.difference.distance).toBeLessThanOrEqual(difference(value, asked).distance)
        }
        expect(difference(asked, asked)).toEqual({ distance: 0, words: [] })
      }),
    )
  })
})

describe('prices', () => {
  const table = { m: { input: 3, output: 15 } }
  const usage = (input: number, output: number) => ({
    input_tokens: input,
    output_tokens: output,
    total_tokens: input + output,
  })

  test('1500 in and 3000 out at 3 and 15 is 0.0495', () => {
    expect(costUsd(table, 'm', usage(1500, 3000))).toBe(0.0495)
  })

  test('a model without a price has no cost, whatever its name is', () => {
    expect(costUsd(table, 'n', usage(1, 1))).toBeUndefined()
    expect(costUsd(table, 'constructor', usage(1, 1))).toBeUndefined()
    expect(costUsd(LIST_PRICES, 'gpt-4o-mini', usage(1000, 1000))).toBe(0.00075)
  })

  test('that are invalid are refused', () => {
    expect(() => checkPrices({ m: { input: 1 } })).toThrow(/m.output/)
    expect(() => checkPrices({ m: null })).toThrow(/m.input/)
    expect(() => checkPrices('x')).toThrow(/object/)
  })
})

test('Retry-After is seconds or a date, and nothing else', () => {
  const now = Date.UTC(2026, 10, 15, 3, 30)
  expect(retryAfterMs('7', now)).toBe(7000)
  expect(retryAfterMs('Sun, 15 Nov 2026 03:30:05 GMT', now)).toBe(5000)
  expect(retryAfterMs('Sun, 15 Nov 2026 03:29:05 GMT', now)).toBe(0)
  for (const bad of ['-1', 'soon', '2026-11-15', '1e3', '', undefined, null]) {
    expect(retryAfterMs(bad, now)).toBeUndefined()
  }
})
