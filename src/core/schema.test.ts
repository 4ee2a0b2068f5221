import { describe, expect, expectTypeOf, test } from 'vitest'
import { type FromFields, objectSchema } from './schema.ts'

const VALUES = {
  name: { type: 'string', minLength: 1 },
  count: { type: 'integer', minimum: 0 },
  level: { enum: ['info', 'error'] },
  one: { const: 1 },
  object: { type: 'object' },
} as const
const RECORDS = {
  place: { path: 'name', 'line?': 'count' },
  issue: { title: 'name', level: 'level', 'places?': 'place[]' },
  closed: { '...': 'issue', reason: 'name', labels: 'name{}', version: 'one', more: 'object' },
  none: {},
} as const
const VOCABULARY = { values: VALUES, records: RECORDS } as const

interface Issue {
  readonly title: string
  readonly level: 'info' | 'error'
  readonly places?: readonly { readonly path: string; readonly line?: number }[]
}

interface ClosedIssue extends Issue {
  readonly reason: string
  readonly labels: { readonly [name: string]: string }
  readonly version: 1
  readonly more: { readonly [name: string]: unknown }
}

describe('formats', () => {
  test('N3: the type of a record follows from its fields', () => {
    expectTypeOf<FromFields<typeof RECORDS.issue, typeof VOCABULARY>>().toEqualTypeOf<Issue>()
    expectTypeOf<FromFields<typeof RECORDS.closed, typeof VOCABULARY>>().toEqualTypeOf<ClosedIssue>()
    expectTypeOf<FromFields<typeof RECORDS.none, typeof VOCABULARY>>().toEqualTypeOf<
      Readonly<Record<string, never>>
    >()
  })

  test('N3: the schema of a record follows from its fields', () => {
    expect(objectSchema(RECORDS.issue, VOCABULARY)).toEqual({
      type: 'object',
      properties: {
        title: VALUES.name,
        level: VALUES.level,
        places: {
          type: 'array',
          items: {
            type: 'object',
            properties: { path: VALUES.name, line: VALUES.count },
            required: ['path'],
            additionalProperties: false,
          },
        },
      },
      required: ['title', 'level'],
      additionalProperties: false,
    })
  })

  test('N3: a record that takes over another one has the fields of both', () => {
    const { properties, required } = objectSchema(RECORDS.closed, VOCABULARY)
    expect(Object.keys(properties ?? {})).toEqual([
      ...['title', 'level', 'places', 'reason', 'labels', 'version', 'more'],
    ])
    expect(required).toEqual(['title', 'level', 'reason', 'labels', 'version', 'more'])
    expect(properties?.['labels']).toEqual({ type: 'object', additionalProperties: VALUES.name })
  })

  test('N3: a record with a document of its own is a reference', () => {
    const references = { place: 'urn:place' }
    const { properties } = objectSchema(RECORDS.issue, { ...VOCABULARY, references })
    expect(properties?.['places']).toEqual({ type: 'array', items: { $ref: 'urn:place' } })
  })

  test('N3: a name that the vocabulary does not have is refused', () => {
    expect(() => objectSchema({ title: 'nmae' }, VOCABULARY)).toThrow(/vocabulary defines nmae/)
    expect(() => objectSchema({ '...': 'name' }, VOCABULARY)).toThrow(/vocabulary defines the record name/)
  })
})
