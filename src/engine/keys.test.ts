import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import {
  agentShared,
  appShared,
  dedupeTag,
  feedTag,
  headTag,
  isDedupeTag,
  isEngineTag,
  isLogTag,
  logOfHeadTag,
  type NamespaceParts,
  namespace,
  parseScope,
  parseStorageKey,
  resolveScope,
  type Scope,
  scopeOf,
  storageKey,
  TAGS,
  tenantShared,
} from './keys.ts'

/** Parts that would probably collide if the escaping were wrong. */
const part = fc.oneof(
  fc.string({ minLength: 1, maxLength: 6, unit: fc.constantFrom(':', '%', '2', '5', '3', 'A', 'a', '_') }),
  fc
    .string({ minLength: 1, maxLength: 20, unit: 'grapheme' })
    .filter(text => !text.includes('\0') && Buffer.byteLength(text) <= 256),
)
const parts: fc.Arbitrary<NamespaceParts> = fc.record({ tenant: part, app: part, agent: part, run: part })
const bytes = fc.string({
  maxLength: 6,
  unit: fc.constantFrom('\0', '\x01', '\x02', 'a', ':', '\x7f', '\x80', '\xff'),
})
const scopeBytes = bytes.map(text => text.replaceAll('\0', 'b')).filter(text => text !== '')
const places = fc.record({
  scope: scopeBytes,
  tag: fc.constantFrom(...Object.values(TAGS), 0x82),
  key: bytes,
})

function refused(action: () => unknown): void {
  expect(action).toThrow(AnnalsError)
  expect(action).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
}

describe('tags', () => {
  test('P6: the tags are those of the file format', () => {
    expect(TAGS).toEqual({
      kv: 1,
      event: 2,
      state: 3,
      trace: 4,
      run: 5,
      ledger: 6,
      machine: 7,
      projection: 8,
      telemetry: 9,
      vector: 16,
    })
  })

  test('events and the ledger are logs, and their dedupe trees are engine trees but not logs', () => {
    expect(Object.values(TAGS).filter(isLogTag)).toEqual([TAGS.event, TAGS.ledger])
    expect(Object.values(TAGS).filter(isEngineTag)).toEqual([])
    expect(dedupeTag(TAGS.event)).toBe(0x82)
    expect(isEngineTag(dedupeTag(TAGS.event))).toBe(true)
    expect(isLogTag(dedupeTag(TAGS.event))).toBe(false)
    const dedupes = Array.from({ length: 256 }, (_, tag) => tag).filter(isDedupeTag)
    expect(dedupes).toEqual([dedupeTag(TAGS.event), dedupeTag(TAGS.ledger)])
  })

  test('the tree of a feed is an engine tree but not a log', () => {
    expect([feedTag(TAGS.event), feedTag(TAGS.ledger)]).toEqual([0xa2, 0xa6])
    expect(isEngineTag(feedTag(TAGS.ledger))).toBe(true)
    expect(isLogTag(feedTag(TAGS.ledger))).toBe(false)
  })

  test('the tree of a log’s head is an engine tree, and its tag gives the tag of the log', () => {
    expect([headTag(TAGS.event), headTag(TAGS.ledger)]).toEqual([0xc2, 0xc6])
    expect(isEngineTag(headTag(TAGS.event))).toBe(true)
    expect(isLogTag(headTag(TAGS.event))).toBe(false)
    const heads = Array.from({ length: 256 }, (_, tag) => [tag, logOfHeadTag(tag)] as const)
    expect(heads.filter(([, log]) => log !== undefined)).toEqual([
      [0xc2, TAGS.event],
      [0xc6, TAGS.ledger],
    ])
  })
})

describe('scopes', () => {
  test('P6: parsing a scope returns its parts, so two different namespaces never share a scope', () => {
    fc.assert(
      fc.property(parts, value => {
        expect(parseScope(scopeOf(value))).toEqual(value)
      }),
    )
  })

  test('P6: a scope has three colons and no byte 0', () => {
    fc.assert(
      fc.property(parts, value => {
        const scope = scopeOf(value)
        expect(scope.split(':')).toHaveLength(4)
        expect(scope).not.toMatch(/\0/)
      }),
    )
  })

  test('the bytes of a scope are as documented', () => {
    expect(scopeOf({ tenant: 'a:b', app: '100%', agent: '%3A', run: 'é' })).toBe(
      `a%3Ab:100%25:%253A:${utf8('é')}`,
    )
  })

  test.each([
    ['an empty part', ''],
    ['a part of 257 bytes', 'x'.repeat(257)],
    ['a part of 129 two-byte characters', 'é'.repeat(129)],
    ['U+0000', 'a\0b'],
    ['a lone surrogate', 'a\ud800'],
    ['the reserved part', '_shared'],
    ['a number', 7 as unknown as string],
    ['a missing part', undefined as unknown as string],
  ])('P17: %s is INVALID_ARGUMENT in every part', (_, value) => {
    const good = { tenant: 't', app: 'a', agent: 'g', run: 'r' }
    for (const name of ['tenant', 'app', 'agent', 'run'] as const) {
      refused(() => namespace({ ...good, [name]: value }))
    }
    refused(() => agentShared({ tenant: 't', app: 'a', agent: value }))
    refused(() => appShared({ tenant: 't', app: value }))
    refused(() => tenantShared({ tenant: value }))
    refused(() => resolveScope('t', value))
  })

  test('parts of 1 and of 256 bytes are accepted', () => {
    for (const run of ['x', 'x'.repeat(256), 'é'.repeat(128), ':'.repeat(256)]) {
      expect(namespace({ tenant: 't', app: 'a', agent: 'g', run }).run).toBe(run)
    }
  })

  test('parsing refuses bytes that are not a scope', () => {
    for (const scope of ['', 'a:b:c', 'a:b:c:d:e', 'a:b:c:%', 'a:b:c:%3a']) refused(() => parseScope(scope))
  })
})

describe('namespaces', () => {
  test('P3: a run id means a run of the default app and agent in the handle’s tenant', () => {
    const scope = namespace({ tenant: 'acme', app: 'default', agent: 'default', run: 'r1' })
    expect(resolveScope('acme', 'r1')).toBe(resolveScope('acme', scope))
    expect(resolveScope('acme', 'r1')).not.toBe(resolveScope('other', 'r1'))
  })

  test('P3: shared namespaces differ from each other and from every run', () => {
    const tenant = 't'
    const scopes: Scope[] = [
      tenantShared({ tenant }),
      appShared({ tenant, app: 'a' }),
      agentShared({ tenant, app: 'a', agent: 'g' }),
      namespace({ tenant, app: 'a', agent: 'g', run: 'r' }),
      'r',
    ]
    expect(new Set(scopes.map(scope => resolveScope(tenant, scope))).size).toBe(scopes.length)
    expect(String(agentShared({ tenant, app: 'a', agent: 'g' }))).toBe('t:a:g:_shared')
  })

  test('a namespace is frozen', () => {
    expect(Object.isFrozen(tenantShared({ tenant: 't' }))).toBe(true)
  })

  test('P3: a namespace of another tenant is refused', () => {
    refused(() => resolveScope('t', tenantShared({ tenant: 'other' })))
  })

  test('P3: the parts of a namespace are read once, so none becomes _shared after the check', () => {
    let reads = 0
    const sly = {
      tenant: 't',
      app: 'a',
      agent: 'g',
      get run() {
        return reads++ === 0 ? 'r' : '_shared'
      },
    }
    expect(String(namespace(sly))).toBe('t:a:g:r')
    expect(reads).toBe(1)
  })

  test('P3: a part that a shared namespace does not have is refused, not ignored', () => {
    const parts = { tenant: 't', app: 'a', agent: 'g', run: 'r' }
    refused(() => agentShared(parts))
    refused(() => appShared(parts))
    refused(() => tenantShared(parts))
    refused(() => namespace({ ...parts, user: 'u' } as NamespaceParts))
    expect(String(agentShared({ tenant: 't', app: 'a', agent: 'g' }))).toBe('t:a:g:_shared')
  })

  test('an object that only looks like a namespace is refused', () => {
    const fake = { tenant: 't', app: '_shared', agent: '_shared', run: '_shared' }
    for (const scope of [fake, null, undefined, 7, {}])
      refused(() => resolveScope('t', scope as unknown as Scope))
    refused(() => namespace(null as unknown as NamespaceParts))
  })
})

describe('storage keys', () => {
  test('P6: parsing a storage key returns its place, so two different places never share a key', () => {
    fc.assert(
      fc.property(places, place => {
        expect(parseStorageKey(storageKey(place.scope, place.tag, place.key))).toEqual(place)
      }),
    )
  })

  test('P6: storage keys sort by scope, then tag, then key', () => {
    fc.assert(
      fc.property(places, places, (a, b) => {
        const expected = order(a.scope, b.scope) || order(a.tag, b.tag) || order(a.key, b.key)
        const found = order(storageKey(a.scope, a.tag, a.key), storageKey(b.scope, b.tag, b.key))
        expect(found).toBe(expected)
      }),
      { numRuns: 2_000 },
    )
  })

  test('parsing refuses bytes that are not a storage key', () => {
    for (const key of ['', 'abc', 'a\0', 'a\0\x01', 'a\0\x01x']) refused(() => parseStorageKey(key))
  })
})

function order<T extends string | number>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0
}
