import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Annals, open } from '../annals.ts'
import type { Value } from '../core/value.ts'

let db: Annals
beforeEach(async () => {
  db = await open({ memory: true })
})
afterEach(() => db.close())

const invalid = expect.objectContaining({ code: 'INVALID_ARGUMENT' })

describe('values', () => {
  const values: Value[] = [
    null,
    true,
    -0,
    Number.NaN,
    Number.NEGATIVE_INFINITY,
    2n ** 63n - 1n,
    'U+0000 \0 and 🙂',
    new Uint8Array([0, 255]),
    [1, ['two', { three: [] }]],
    JSON.parse('{"__proto__": {"polluted": true}, "": 1, "10": 2, "9": 3}') as Value,
  ]
  for (const value of values) {
    test(`${typeof value === 'bigint' ? value : JSON.stringify(value)} is read back unchanged`, async () => {
      await db.kv.put('run', 'key', value)
      const back = await db.kv.get('run', 'key')
      expect(back).toStrictEqual(value)
      if (typeof back === 'object' && back !== null && !(back instanceof Uint8Array)) {
        expect(Object.isFrozen(back)).toBe(true)
      }
    })
  }

  const nested = (depth: number): Value => (depth === 0 ? 1 : [nested(depth - 1)])
  test('P17: 64 nested containers are accepted, and 65 are refused', async () => {
    await db.kv.put('run', 'deep', nested(64))
    expect(await db.kv.get('run', 'deep')).toStrictEqual(nested(64))
    await expect(db.kv.put('run', 'deep', nested(65))).rejects.toEqual(invalid)
    expect(await db.kv.get('run', 'deep')).toStrictEqual(nested(64))
  })

  for (const [name, value] of Object.entries({
    'a function': () => 1,
    undefined,
    'a lone surrogate': '\ud800',
    'a date': new Date(),
    'a bigint of 65 bits': 2n ** 63n,
    'more than 16 MiB': 'x'.repeat(16 * 1024 * 1024),
  })) {
    test(`P17: ${name} is refused, and nothing changes`, async () => {
      await db.kv.put('run', 'key', 'before')
      await expect(db.kv.put('run', 'key', value as Value)).rejects.toEqual(invalid)
      expect(await db.kv.get('run', 'key')).toBe('before')
    })
  }
})

describe('keys', () => {
  for (const [name, key] of Object.entries({
    'of 0 bytes': '',
    'of 1,025 bytes': 'k'.repeat(1025),
    'of 1,026 bytes in 513 chars': 'é'.repeat(513),
    'with a lone surrogate': 'a\udc00',
    'with U+0000': 'a\0b',
    'that is a number': 7,
  })) {
    test(`P17: a key ${name} is refused everywhere`, async () => {
      for (const call of [
        () => db.kv.put('run', key as string, 1),
        () => db.kv.get('run', key as string),
        () => db.kv.delete('run', key as string),
        () => db.kv.exists('run', key as string),
        () => db.kv.list('run', { after: key as string }),
      ]) {
        await expect(call()).rejects.toEqual(invalid)
      }
      expect(await db.kv.list('run')).toEqual([])
    })
  }

  test('P17: keys of 1 and of 1,024 bytes are accepted', async () => {
    for (const key of ['k', 'k'.repeat(1024), '🙂'.repeat(256)]) {
      await db.kv.put('run', key, key)
      expect(await db.kv.get('run', key)).toBe(key)
    }
  })

  test('P6: keys that look like internal names are ordinary keys', async () => {
    const keys = ['%3A', ':', '__idx_tag__:x', '__meta__', '__proto__', 'a/../b']
    for (const key of keys) await db.kv.put('run', key, key)
    expect(await db.kv.list('run')).toEqual(keys)
  })
})

describe('list and entries', () => {
  const keys = ['a', 'b/1', 'b/2', 'b/é', 'b0', 'c', 'é', 'ﬀ', '🙂']
  beforeEach(async () => {
    for (const key of keys) await db.kv.put('run', key, key)
  })

  test('P6: keys are in the order of their UTF-8 bytes, not of UTF-16', async () => {
    expect(await db.kv.list('run')).toEqual(keys)
  })

  test('prefix, limit and after combine', async () => {
    expect(await db.kv.list('run', { prefix: 'b/' })).toEqual(['b/1', 'b/2', 'b/é'])
    expect(await db.kv.list('run', { prefix: 'b/', limit: 2 })).toEqual(['b/1', 'b/2'])
    expect(await db.kv.list('run', { prefix: 'b/', after: 'b/1' })).toEqual(['b/2', 'b/é'])
    expect(await db.kv.list('run', { prefix: 'b/', after: 'a' })).toEqual(['b/1', 'b/2', 'b/é'])
    expect(await db.kv.list('run', { prefix: 'b/', after: 'c' })).toEqual([])
    expect(await db.kv.list('run', { after: 'c' })).toEqual(['é', 'ﬀ', '🙂'])
    expect(await db.kv.entries('run', { limit: 1 })).toEqual([['a', 'a']])
  })

  for (const limit of [0, -1, 1.5, Number.NaN, '1']) {
    test(`limit ${limit} is refused`, async () => {
      await expect(db.kv.list('run', { limit: limit as number })).rejects.toEqual(invalid)
    })
  }
})

describe('ttl', () => {
  test('P14: a put without ttlMs clears it; ttlMs is a positive integer', async () => {
    for (const ttlMs of [0, -5, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '9', 5n, Symbol('5')]) {
      await expect(db.kv.put('run', 'k', 1, { ttlMs: ttlMs as number })).rejects.toEqual(invalid)
    }
    await db.kv.put('run', 'k', 1, { ttlMs: 60_000 })
    await db.kv.put('run', 'k', 2)
    expect(await db.kv.get('run', 'k')).toBe(2)
  })
})

describe('options', () => {
  test('misspelt options, and options that are not an object, are refused and not ignored', async () => {
    for (const options of [null, 5, { ttl: 5 }]) {
      await expect(db.kv.put('run', 'k', 1, options as never)).rejects.toEqual(invalid)
      await expect(db.kv.list('run', options as never)).rejects.toEqual(invalid)
      await expect(db.transaction('run', () => 1, options as never)).rejects.toEqual(invalid)
      await expect(db.begin('run', options as never)).rejects.toEqual(invalid)
    }
    await expect(db.transaction('run', undefined as never)).rejects.toEqual(invalid)
    await expect(db.kv.transaction('run', 7 as never)).rejects.toEqual(invalid)
    expect(await db.kv.list('run')).toEqual([])
  })
})

describe('versions', () => {
  test('a version grows with every change, and delete returns whether the key existed', async () => {
    await db.kv.put('run', 'k', 1)
    const first = await db.kv.getVersioned('run', 'k')
    await db.kv.put('run', 'k', 1)
    const second = await db.kv.getVersioned('run', 'k')
    expect(second?.version).toBeGreaterThan(first?.version ?? 0)
    expect(second?.updatedAt).toBeGreaterThan(1_700_000_000_000)
    expect(await db.kv.delete('run', 'k')).toBe(true)
    expect(await db.kv.delete('run', 'k')).toBe(false)
    expect(await db.kv.getVersioned('run', 'k')).toBeUndefined()
    expect(await db.kv.exists('run', 'k')).toBe(false)
  })
})
