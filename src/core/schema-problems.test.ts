import { describe, expect, test } from 'vitest'
import type { JsonSchema } from './schema.ts'
import { schemaProblems } from './schema-problems.ts'

/** For each keyword: a schema, a valid value and an invalid value. */
const CASES: readonly (readonly [keyof JsonSchema, JsonSchema, unknown, unknown])[] = [
  ['type', { type: 'object' }, {}, []],
  ['type', { type: 'array' }, [], {}],
  ['type', { type: 'integer' }, 1, 1.5],
  ['type', { type: 'number' }, 1.5, '1'],
  ['type', { type: 'boolean' }, false, 0],
  ['type', { type: 'null' }, null, undefined],
  ['type', { type: 'string' }, '', null],
  ['const', { const: 1 }, 1, 2],
  ['enum', { enum: ['a', 'b'] }, 'b', 'c'],
  ['pattern', { type: 'string', pattern: '^a+$' }, 'aa', 'ab'],
  ['minLength', { type: 'string', minLength: 1 }, 'a', ''],
  ['maxLength', { type: 'string', maxLength: 1 }, 'a', 'ab'],
  ['minimum', { minimum: 0 }, 0, -1],
  ['maximum', { maximum: 1 }, 1, 2],
  ['required', { required: ['a'] }, { a: 1 }, {}],
  ['type', { properties: { a: { type: 'string' } } }, { a: '' }, { a: 1 }],
  ['additionalProperties', { properties: { a: {} }, additionalProperties: false }, { a: 1 }, { b: 1 }],
  ['type', { additionalProperties: { type: 'string' } }, { x: '' }, { x: 1 }],
  ['type', { items: { type: 'string' } }, ['a'], ['a', 1]],
  ['type', { allOf: [{ type: 'string' }, { minLength: 1 }] }, 'a', 1],
  ['minLength', { $ref: 'name' }, 'a', ''],
]
const resolve = (): JsonSchema => ({ type: 'string', minLength: 1 })

describe('JSON Schema', () => {
  test.each(CASES)('N3: the keyword %s of %j accepts %j and rejects %j', (keyword, schema, good, bad) => {
    expect(schemaProblems(schema, good, resolve)).toEqual([])
    expect(schemaProblems(schema, bad, resolve).map(problem => problem.keyword)).toContain(keyword)
  })

  test('N3: `then` applies only to values that `if` accepts', () => {
    const schema: JsonSchema = {
      if: { properties: { type: { const: 'a' } } },
      // biome-ignore lint/suspicious/noThenProperty: it is the name of the keyword, and a schema is never awaited.
      then: { required: ['more'] },
    }
    expect(schemaProblems(schema, { type: 'b' }, resolve)).toEqual([])
    expect(schemaProblems(schema, { type: 'a', more: 1 }, resolve)).toEqual([])
    expect(schemaProblems(schema, { type: 'a' }, resolve)).toMatchObject([{ keyword: 'required' }])
  })

  test('N3: a problem names the path of the invalid value', () => {
    const [problem] = schemaProblems(
      { properties: { a: { items: { type: 'string' } } } },
      { a: ['', 1] },
      resolve,
    )
    expect(problem).toMatchObject({ path: '$.a[1]', keyword: 'type' })
  })

  test('N3: names of the prototype are not fields', () => {
    const schema: JsonSchema = { properties: { a: {} }, required: ['toString'], additionalProperties: false }
    const keywords = (value: unknown): unknown[] =>
      schemaProblems(schema, value, resolve).map(({ keyword }) => keyword)
    expect(keywords({})).toEqual(['required'])
    expect(keywords(JSON.parse('{"__proto__":1,"toString":1}'))).toEqual([
      ...['additionalProperties', 'additionalProperties'],
    ])
  })
})
