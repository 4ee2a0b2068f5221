import { describe, expect, test } from 'vitest'
import { Random, seedOfRun } from '../testing/random.ts'
import { parseJsonText } from './json-text.ts'
import { parseLargeJson } from './large-json.ts'

const parse = (text: string, pieceBytes = 64 * 1024): Promise<unknown> =>
  parseLargeJson(Buffer.from(text), { pieceBytes })

const STRINGS = [
  '',
  'a',
  'ä🚀',
  '"',
  '\\',
  '\\"',
  '\n\u0000',
  '{[,]}:',
  'true',
  '__proto__',
  '7',
  'x'.repeat(40),
]

function someValue(random: Random, depth: number): unknown {
  const kind = random.below(depth > 5 ? 5 : 8)
  if (kind === 0) return [null, true, false][random.below(3)]
  if (kind === 1) return [0, -1, 1.5, 1e21, 123456789012, -0.000001][random.below(6)]
  if (kind < 5) return STRINGS[random.below(STRINGS.length)]
  const length = random.below(6)
  if (kind < 7) return Array.from({ length }, () => someValue(random, depth + 1))
  const members = Array.from({ length }, () => [
    `${STRINGS[random.below(STRINGS.length)]}`,
    someValue(random, depth + 1),
  ])
  return Object.fromEntries(members)
}

/** The text with added white space, escapes, and sometimes a misplaced character. */
function disturbed(random: Random, text: string): string {
  let changed = random.below(2) === 0 ? text : JSON.stringify(JSON.parse(text), null, random.below(4))
  if (random.below(4) === 0) changed = changed.replaceAll('a', '\\u0061').replaceAll('ä', '\\u00e4')
  if (random.below(2) === 0) return changed
  const at = random.below(changed.length + 1)
  const put = ['', ',', ']', '[', '}', '{', '"', ':', '1', ' ', '\\', 't', 'null', '"b":2,'][random.below(14)]
  return (changed.slice(0, at) + put + changed.slice(at + random.below(3))).toWellFormed()
}

interface Judged {
  readonly value?: unknown
  readonly code?: string
}

/** The value that `parse` returns, or the code of its error. */
async function judged(parse: () => unknown): Promise<Judged> {
  try {
    return { value: await parse() }
  } catch (error) {
    return { code: (error as { code: string }).code }
  }
}

test('both parsers accept the same texts with the same result, for any length of pieces', async () => {
  const seed = seedOfRun()
  console.log(`seed ${seed}`)
  const random = new Random(seed)
  let refusals = 0
  for (let i = 0; i < 5_000; i++) {
    const text = disturbed(random, JSON.stringify(someValue(random, 0)))
    const expected = await judged(() => parseJsonText(text))
    const pieceBytes = 1 + random.below(60)
    const what = `seed ${seed}, text ${i}, pieces of ${pieceBytes}: ${text}`
    const found = await judged(() => parse(text, pieceBytes))
    if (expected.code !== undefined) refusals++
    // Comparing texts also compares the order of keys, and `__proto__` as an ordinary key.
    expect(JSON.stringify(found), what).toBe(JSON.stringify(expected))
  }
  expect(refusals).toBeGreaterThan(500)
})

test('a long text without a comma before it is refused at any position', async () => {
  const long = 'x'.repeat(100)
  for (const text of [`{"a":1"${long}"}`, `{"a":1"${long}":2}`, `[1"${long}"]`, `{"a" "${long}"}`]) {
    expect(await judged(() => parse(text, 16)), text).toEqual(await judged(() => parseJsonText(text)))
    expect(await judged(() => parse(text, 16)), text).toMatchObject({ code: 'INVALID_ARGUMENT' })
  }
})

describe('bodies are bounded before they are parsed', () => {
  const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth)
  const wide = (values: number): string => `[${'1,'.repeat(values - 2)}1]`
  const members = (count: number): string =>
    `{${Array.from({ length: count }, (_, i) => `"${i}x":1`).join(',')}}`
  test.each([
    ['in depth', nested(68), nested(69), 'more than 68 nested containers'],
    ['in number of values', wide(2_000_000), wide(2_000_001), 'more than 2000000 values'],
    ['in members of an object', members(50_000), members(50_001), 'more than 50000 members'],
    ['in the length of a name', `{"${'a'.repeat(65_000)}":1}`, `{"${'a'.repeat(66_000)}":1}`, 'a name of'],
    ['in white space', `[1,${' '.repeat(65_000)}1]`, `[1,${' '.repeat(66_000)}1]`, 'white space'],
    ['in digits', `[0.${'1'.repeat(900)}]`, `[0.${'1'.repeat(1_000)}]`, 'a number of more than'],
  ])('%s', async (_, fits, bursts, reason) => {
    expect(JSON.stringify(await parse(fits))).toBe(JSON.stringify(JSON.parse(fits)))
    await expect(parse(bursts)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      details: { reason: expect.stringContaining(reason) },
    })
  })

  test.each(['9007199254740993', '12345678901234567890.0', '1e400'])(
    'the number %s, which JavaScript does not have, is refused',
    async number => {
      await expect(parse(`[${'1,'.repeat(99)}${number}]`, 16)).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
      })
    },
  )

  test('bytes that are not UTF-8 are refused', async () => {
    const bytes = Buffer.from(`"${'x'.repeat(100_000)}"`)
    bytes[70_000] = 0xff
    await expect(parseLargeJson(bytes)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })
})
