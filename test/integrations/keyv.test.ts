import { keyvIteratorTests, default as keyvTestSuite } from '@keyv/test-suite'
import Keyv from 'keyv'
import * as vitest from 'vitest'
import { open } from '../../src/annals.ts'
import { AnnalsKeyv } from '../../src/integrations/keyv.ts'
import { onEveryEngine } from './engines.ts'

const { describe, expect, test } = vitest

onEveryEngine(db => {
  const store = (): AnnalsKeyv => new AnnalsKeyv(db(), { scope: 'keyv-suite' })
  describe("Keyv's suite", () => keyvTestSuite(vitest, Keyv, store))
  describe("Keyv's suite of iterators", () => keyvIteratorTests(vitest, Keyv, store))

  test('many entries are set, found and deleted in one call each', async () => {
    const keyv = new Keyv({ store: new AnnalsKeyv(db(), { scope: 'many' }), throwOnErrors: true })
    expect(
      await keyv.setMany([
        { key: 'a', value: 1 },
        { key: 'b', value: 2, ttl: 60_000 },
      ]),
    ).toEqual([true, true])
    expect(await keyv.getMany(['b', 'c', 'a'])).toEqual([2, undefined, 1])
    expect(await keyv.hasMany(['a', 'c'])).toEqual([true, false])
    expect(await keyv.deleteMany(['a', 'a', 'c'])).toBe(true)
    expect(await keyv.deleteMany(['a'])).toBe(false)
    expect(await keyv.has('b')).toBe(true)
  })

  test('a value with a lifetime is gone from the database after it', async () => {
    const keyv = new Keyv({ store: new AnnalsKeyv(db(), { scope: 'lifetime' }), throwOnErrors: true })
    await keyv.set('forever', 1, Number.POSITIVE_INFINITY)
    await keyv.set('short', 2, 0.5)
    await expect.poll(() => db().kv.list('lifetime')).toEqual(['keyv:forever'])
    expect(await keyv.has('short')).toBe(false)
    expect(await keyv.get('forever')).toBe(1)
  })

  test('clear and iterator leave a namespace alone whose name only begins the same', async () => {
    const keyvOf = (namespace: string): Keyv =>
      new Keyv({ store: new AnnalsKeyv(db(), { scope: 'names' }), namespace, throwOnErrors: true })
    const [short, long] = [keyvOf('user'), keyvOf('users')]
    await short.set('a:b', 1)
    await long.set('a', 2)
    const found: unknown[] = []
    for await (const entry of short.iterator?.({}) ?? []) found.push(entry)
    expect(found).toEqual([['a:b', 1]])
    await short.clear()
    expect(await long.get('a')).toBe(2)
  })

  test('without serialization, values are stored as they are', async () => {
    const adapter = new AnnalsKeyv(db(), { scope: 'plain' })
    const keyv = new Keyv({ store: adapter, throwOnErrors: true })
    keyv.serialize = undefined
    keyv.deserialize = undefined
    await keyv.set('bytes', new Uint8Array([1, 2]))
    expect(await keyv.get('bytes')).toEqual(new Uint8Array([1, 2]))
    expect(await db().kv.get('plain', 'keyv:bytes')).toEqual({ value: new Uint8Array([1, 2]) })
  })

  test('invalid keys, lifetimes and values are typed errors, and nothing is stored', async () => {
    const adapter = new AnnalsKeyv(db(), { scope: 'invalid' })
    const keyv = new Keyv({ store: adapter, throwOnErrors: true })
    const errors: unknown[] = []
    keyv.on('error', error => errors.push(error))
    const invalid = { code: 'INVALID_ARGUMENT' }
    await expect(keyv.set('a\0b', 1)).rejects.toMatchObject(invalid)
    await expect(keyv.set('k'.repeat(1025), 1)).rejects.toMatchObject(invalid)
    await expect(keyv.set('a', 1, -5)).rejects.toMatchObject(invalid)
    await expect(keyv.set('a', 1, Number.NaN)).rejects.toMatchObject(invalid)
    await expect(adapter.set('', 'x')).rejects.toMatchObject(invalid)
    await expect(keyv.get('a\0b')).rejects.toMatchObject(invalid)
    await expect(
      keyv.setMany([
        { key: 'good', value: 1 },
        { key: 'a\0b', value: 1 },
      ]),
    ).rejects.toMatchObject(invalid)
    expect(errors.length).toBeGreaterThanOrEqual(5)
    expect(await db().kv.list('invalid')).toEqual([])
    expect(() => new AnnalsKeyv(db(), { scope: '' })).toThrow(expect.objectContaining(invalid))
  })
})

test('a failed get is emitted as an error, although Keyv itself reports a missing key', async () => {
  const db = await open({ memory: true })
  const keyv = new Keyv({ store: new AnnalsKeyv(db, { scope: 'cache' }) })
  const errors: unknown[] = []
  keyv.on('error', error => errors.push(error))
  await db.close()
  expect(await keyv.get('a')).toBeUndefined()
  expect(errors).toEqual([expect.objectContaining({ code: 'CLOSED' })])
})

test('disconnecting leaves the database open', async () => {
  await using db = await open({ memory: true })
  const keyv = new Keyv({ store: new AnnalsKeyv(db, { scope: 'cache' }) })
  await keyv.disconnect()
  await db.kv.put('other', 'a', 1)
  expect(await db.kv.get('other', 'a')).toBe(1)
})
