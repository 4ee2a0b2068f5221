import { expect } from 'vitest'
import type { ByteString } from '../../core/bytes.ts'
import type { Range } from '../../engine/storage.ts'
import { Random } from '../random.ts'
import { commit, KV, keysOf, put, range, SCOPE, type Suite, valueAt } from './suite.ts'

/** P6: each (scope, tag) is a separate tree whose keys are in byte order. */
export function testOrder(suite: Suite): void {
  suite.holds('P6: a scan is in byte order, with bytes from 0x80 after the others', async storage => {
    const keys = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte))
    keys.push(...['\0\0', 'a\0', 'ab', 'a\xff', '\xff\xff', '\x7f\x80', '\x80\x7f'])
    for (const key of shuffled(keys, 1)) await commit(storage, put(key, `value of ${key}`))
    const found = await storage.scan(range())
    expect(keysOf(found)).toEqual([...keys].sort())
    expect(found.map(entry => entry.value)).toEqual([...keys].sort().map(key => `value of ${key}`))
  })

  suite.holds('P6: from, to, reverse and limit combine as they would on a sorted list', async storage => {
    const keys = ['\0', 'a', 'a\0', 'ab', 'b', 'b\x80', 'c', '\xff', '\xff\xff']
    await commit(storage, ...shuffled(keys, 2).map(key => put(key, key)))
    const bounds = [undefined, '', '\0', 'a', 'a\0\0', 'aa', 'b\x80', 'zz', '\xff', '\xff\xff\0']
    for (const from of bounds) {
      for (const to of bounds) {
        for (const reverse of [undefined, false, true]) {
          for (const limit of [undefined, 1, 3, keys.length, 1000]) {
            // `once` is a caching hint, which must not change the result.
            const asked = range({ from, to, reverse, limit, once: limit === 3 })
            expect(keysOf(await storage.scan(asked)), JSON.stringify(asked)).toEqual(model(keys, asked))
          }
        }
      }
    }
  })

  suite.holds(
    'P6: keys of 1 and of 4,096 bytes are found, even if they differ only in their last byte',
    async storage => {
      const long = 'k'.repeat(4095)
      await commit(storage, put('k', '1'), put(`${long}a`, '2'), put(`${long}\xff`, '3'), put(long, '4'))
      expect(keysOf(await storage.scan(range()))).toEqual(['k', long, `${long}a`, `${long}\xff`])
      expect(await valueAt(storage, `${long}\xff`)).toBe('3')
      expect(await valueAt(storage, `${long}b`)).toBeUndefined()
    },
  )

  suite.holds('P3: a reader sees no other scope and no other tag', async storage => {
    const scopes = ['a', 'a:', 'a:b', 'ab', 'a\x01', '\x01']
    const tags = [0x01, 0x03, 0x04, 0x10]
    const places = scopes.flatMap(scope => tags.map(tag => ({ scope, tag })))
    for (const { scope, tag } of places) {
      await commit(storage, put('key', `${scope} ${tag}`, { scope, tag }), put(`${tag}`, '', { scope, tag }))
    }
    for (const { scope, tag } of places) {
      expect((await storage.get(scope, tag, 'key'))?.value).toBe(`${scope} ${tag}`)
      expect(keysOf(await storage.scan({ scope, tag }))).toEqual([`${tag}`, 'key'])
    }
    expect(await storage.scan({ scope: 'a:b:c', tag: KV })).toEqual([])
    expect(await storage.get('a:b:c', KV, 'key')).toBeUndefined()
  })

  suite.holds(
    'P6: a tree of 5,000 keys, written in random order, reads page by page in both directions',
    async storage => {
      const keys = Array.from({ length: 5_000 }, (_, i) => `key-${String(i).padStart(5, '0')}`)
      const mixed = shuffled(keys, 3)
      for (let i = 0; i < mixed.length; i += 100) {
        await commit(storage, ...mixed.slice(i, i + 100).map(key => put(key, `value of ${key}`)))
      }
      const forwards: ByteString[] = []
      for (let from: ByteString | undefined = ''; from !== undefined; ) {
        const page = keysOf(await storage.scan(range({ from, limit: 97 })))
        forwards.push(...page)
        from = page.length === 0 ? undefined : `${page[page.length - 1]}\0`
      }
      expect(forwards).toEqual(keys)
      const backwards: ByteString[] = []
      for (let to: ByteString | undefined = '\xff'; to !== undefined; ) {
        const page = keysOf(await storage.scan(range({ to, limit: 103, reverse: true })))
        backwards.push(...page)
        to = page[page.length - 1]
      }
      expect(backwards).toEqual([...keys].reverse())
      for (const key of mixed.slice(0, 200)) expect(await valueAt(storage, key)).toBe(`value of ${key}`)
    },
  )

  suite.holds('P3: 2,000 trees do not mix', async storage => {
    const scopes = Array.from({ length: 2_000 }, (_, i) => `${SCOPE}-${i}`)
    for (let i = 0; i < scopes.length; i += 50) {
      await commit(storage, ...scopes.slice(i, i + 50).map(scope => put('key', scope, { scope })))
    }
    for (const scope of scopes) {
      expect((await storage.scan({ scope, tag: KV })).map(entry => entry.value)).toEqual([scope])
    }
  })
}

function model(keys: readonly ByteString[], { from, to, reverse, limit }: Range): ByteString[] {
  const inside = [...keys]
    .sort()
    .filter(key => (from === undefined || key >= from) && (to === undefined || key < to))
  return (reverse === true ? inside.reverse() : inside).slice(0, limit)
}

function shuffled<T>(items: readonly T[], seed: number): T[] {
  const random = new Random(seed)
  const copy = [...items]
  for (let i = copy.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    const item = copy[i]
    copy[i] = copy[j]
    copy[j] = item
  }
  return copy
}
