import { Embeddings } from '@langchain/core/embeddings'
import { InvalidNamespaceError } from '@langchain/langgraph-checkpoint'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { AnnalsStore } from '../../src/integrations/langgraph.ts'
import { type OpenedStore, onEachEngine } from './langgraph-stores.ts'

/** Embeds a text as the counts of the letters a, b and c. */
class LetterCounts extends Embeddings {
  constructor() {
    super({})
  }

  override async embedQuery(text: string): Promise<number[]> {
    return ['a', 'b', 'c'].map(letter => text.split(letter).length - 1)
  }

  override embedDocuments(texts: string[]): Promise<number[][]> {
    return Promise.all(texts.map(text => this.embedQuery(text)))
  }
}

const keysOf = (items: readonly { readonly key: string }[]): string[] => items.map(({ key }) => key)

onEachEngine((engine, openStore) => {
  describe(`AnnalsStore on ${engine}`, () => {
    let opened: OpenedStore
    let store: AnnalsStore

    beforeEach(async () => {
      opened = await openStore()
      store = new AnnalsStore(opened.db)
    })
    afterEach(() => opened.close())

    test('an item comes back with its value, place and times', async () => {
      const value = { text: 'hello', nested: { list: [1, null, true] } }
      const before = Date.now()
      await store.put(['users', 'u/1%'], 'key/1', value)
      const item = await store.get(['users', 'u/1%'], 'key/1')
      expect(item).toMatchObject({ value, namespace: ['users', 'u/1%'], key: 'key/1' })
      expect(item?.createdAt.getTime()).toBeGreaterThanOrEqual(before)
      expect(await store.get(['users'], 'key/1')).toBeNull()
    })

    test('a second put keeps the time of creation', async () => {
      await store.put(['a'], 'k', { n: 1 })
      const first = await store.get(['a'], 'k')
      await store.put(['a'], 'k', { n: 2 })
      const second = await store.get(['a'], 'k')
      expect(second?.createdAt).toEqual(first?.createdAt)
      expect(second?.value).toEqual({ n: 2 })
    })

    test('a deleted item is gone, and its namespace with it', async () => {
      await store.put(['a'], 'k', { n: 1 })
      await store.delete(['a'], 'k')
      await store.delete(['a'], 'never there')
      expect(await store.get(['a'], 'k')).toBeNull()
      expect(await store.listNamespaces()).toEqual([])
    })

    test('the reads of a batch see the state before it, and its last put of an item counts', async () => {
      await store.put(['a'], 'k', { n: 0 })
      const results = await store.batch([
        { namespace: ['a'], key: 'k', value: { n: 1 } },
        { namespace: ['a'], key: 'k' },
        { namespace: ['a'], key: 'k', value: { n: 2 } },
        { namespacePrefix: ['a'] },
      ])
      expect(results[1]).toMatchObject({ value: { n: 0 } })
      expect((await store.get(['a'], 'k'))?.value).toEqual({ n: 2 })
    })

    test('search finds items below a prefix, and only whole labels match', async () => {
      await store.put(['ab'], 'other', {})
      for (const namespace of [['a'], ['a', 'b'], ['a', '-']]) await store.put(namespace, 'k', {})
      const found = await store.search(['a'])
      expect(found.map(({ namespace }) => namespace)).toEqual(
        expect.arrayContaining([['a'], ['a', 'b'], ['a', '-']]),
      )
      expect(found).toHaveLength(3)
      expect(await store.search([])).toHaveLength(4)
    })

    test('search filters, skips and limits', async () => {
      for (let n = 0; n < 15; n++)
        await store.put(['a'], `k${String(n).padStart(2, '0')}`, { n, even: n % 2 === 0 })
      expect(await store.search(['a'])).toHaveLength(10)
      expect(keysOf(await store.search(['a'], { filter: { even: true }, offset: 1, limit: 2 }))).toEqual([
        'k02',
        'k04',
      ])
      expect(keysOf(await store.search(['a'], { filter: { n: { $gte: 3, $lt: 5 } } }))).toEqual([
        'k03',
        'k04',
      ])
      expect(keysOf(await store.search(['a'], { filter: { n: { $in: [1, 14] } } }))).toEqual(['k01', 'k14'])
      expect(await store.search(['a'], { filter: { n: { $ne: 1 } }, limit: 100 })).toHaveLength(14)
      expect(await store.search(['a'], { filter: { n: { $nin: [1, 2] } }, limit: 100 })).toHaveLength(13)
    })

    test('listNamespaces matches prefixes, suffixes and depths', async () => {
      const namespaces = [
        ['a', 'b', 'c'],
        ['a', 'b', 'd', 'e'],
        ['a', 'b', 'd', 'i'],
        ['a', 'c', 'f'],
        ['b', 'a', 'f'],
        ['u'],
      ]
      for (const namespace of namespaces) await store.put(namespace, 'k', {})
      expect(await store.listNamespaces({ prefix: ['a', 'b'] })).toEqual(namespaces.slice(0, 3))
      expect(await store.listNamespaces({ suffix: ['f'] })).toEqual(namespaces.slice(3, 5))
      expect(await store.listNamespaces({ prefix: ['a', '*', 'd'] })).toEqual(namespaces.slice(1, 3))
      expect(await store.listNamespaces({ prefix: ['a', 'b'], maxDepth: 3 })).toEqual([
        ['a', 'b', 'c'],
        ['a', 'b', 'd'],
      ])
      expect(await store.listNamespaces({ limit: 2, offset: 1 })).toEqual(namespaces.slice(1, 3))
    })

    test('listNamespaces finds every namespace behind one with many items', async () => {
      const puts = Array.from({ length: 250 }, (_, i) => ({ namespace: ['b'], key: `k${i}`, value: {} }))
      const others = ['a', 'b-', 'c'].map(label => ({ namespace: ['b', label], key: 'k', value: {} }))
      await store.batch([...puts, ...others, { namespace: ['c'], key: 'k', value: {} }])
      const found = await store.listNamespaces()
      expect(found.map(namespace => namespace.join('/')).sort()).toEqual(['b', 'b/a', 'b/b-', 'b/c', 'c'])
    })

    test('search with a query ranks items by similarity', async () => {
      const indexed = new AnnalsStore(opened.db, {
        index: { dims: 3, embeddings: new LetterCounts(), fields: ['text'] },
      })
      await indexed.put(['docs'], 'a', { text: 'aaa' })
      await indexed.put(['docs'], 'ab', { text: 'aab' })
      await indexed.put(['docs'], 'b', { text: 'bbb', other: 'aaa' })
      await indexed.put(['docs'], 'none', { text: 'aaa' }, false)
      const found = await indexed.search(['docs'], { query: 'a' })
      expect(keysOf(found)).toEqual(['a', 'ab', 'b', 'none'])
      expect(found[0].score).toBeCloseTo(1)
      expect(found[3].score).toBeUndefined()
      await indexed.put(['docs'], 'b', { text: 'bbb', other: 'aaa' }, ['text', 'other'])
      expect(
        (await indexed.search(['docs'], { query: 'a', limit: 3 })).find(({ key }) => key === 'b')?.score,
      ).toBeCloseTo(1)
    })

    test('paths name nested fields, elements of lists and the whole item', async () => {
      const index = { dims: 3, embeddings: new LetterCounts() }
      const indexed = new AnnalsStore(opened.db, { index })
      const value = { meta: { title: 'aaa' }, parts: [{ text: 'b' }, { text: 'c' }], n: 1 }
      const scoreOf = async (query: string, paths: string[]) => {
        await indexed.put(['docs'], 'k', value, paths)
        return (await indexed.search(['docs'], { query }))[0].score
      }
      expect(await scoreOf('a', ['meta.title'])).toBeCloseTo(1)
      expect(await scoreOf('c', ['parts[*].text'])).toBeCloseTo(1)
      expect(await scoreOf('c', ['parts[0].text'])).toBeCloseTo(0)
      expect(await scoreOf('c', ['parts[-1].text'])).toBeCloseTo(1)
      expect(await scoreOf('a', ['$'])).toBeGreaterThan(0.5)
      expect(await scoreOf('a', ['missing', 'meta.missing', 'n[0]'])).toBeUndefined()
    })

    test('bad input is refused, and nothing is written', async () => {
      await expect(store.put([], 'k', {})).rejects.toBeInstanceOf(InvalidNamespaceError)
      const empty = { namespace: ['a', ''], key: 'k', value: {} }
      await expect(store.batch([{ namespace: ['a'], key: 'k', value: {} }, empty])).rejects.toBeInstanceOf(
        InvalidNamespaceError,
      )
      const wrong = new AnnalsStore(opened.db, { index: { dims: 7, embeddings: new LetterCounts() } })
      await expect(wrong.put(['a'], 'k', { text: 'a' })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      expect(await store.search([])).toEqual([])
    })
  })
})
