import { once } from 'node:events'
import suite from 'abstract-level/test/index.js'
import tape from 'tape'
import { expect, test } from 'vitest'
import { type Annals, open } from '../../src/annals.ts'
import { AnnalsLevel, type AnnalsLevelOptions } from '../../src/integrations/abstract-level.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { onEveryEngine } from './engines.ts'

/** A row of tape's output. */
interface Row {
  readonly type: 'test' | 'assert' | 'end'
  readonly name?: string
  readonly ok?: boolean
  readonly expected?: unknown
  readonly actual?: unknown
}

let levels = 0

/** Runs abstract-level's own suite. Each database of the suite is a scope of its own. */
async function runSuite(
  db: Annals,
  settings: Pick<AnnalsLevelOptions, 'snapshots'>,
): Promise<{ passed: number; failures: unknown[] }> {
  const harness = tape.createHarness()
  const rows = harness.createStream({ objectMode: true })
  suite({
    test: harness,
    factory: options => new AnnalsLevel(db, { ...options, ...settings, scope: `level-${levels++}` }),
  })
  let passed = 0
  let name = ''
  const failures: unknown[] = []
  rows.on('data', (row: Row) => {
    if (row.type === 'test') name = row.name ?? ''
    if (row.type !== 'assert') return
    if (row.ok === true) passed++
    else failures.push({ test: name, assertion: row.name, expected: row.expected, actual: row.actual })
  })
  await once(rows, 'end')
  return { passed, failures }
}

/** How many assertions the suite makes with snapshots, and without them. */
const ASSERTIONS = { with: 4_664, without: 4_296 }
const invalid = { code: 'INVALID_ARGUMENT' }

onEveryEngine((db, engine) => {
  // On PostgreSQL each snapshot holds a connection, and the suite opens more snapshots at once than a server has connections.
  const snapshots = engine !== 'postgres'
  test(`abstract-level's suite passes ${snapshots ? 'with' : 'without'} snapshots`, async () => {
    const { passed, failures } = await runSuite(db(), { snapshots })
    expect(failures).toEqual([])
    expect(passed).toBe(snapshots ? ASSERTIONS.with : ASSERTIONS.without)
  })

  const newLevel = <K = string, V = string>(
    options: Partial<AnnalsLevelOptions<K, V>> = {},
  ): AnnalsLevel<K, V> => new AnnalsLevel<K, V>(db(), { scope: `level-${levels++}`, ...options })

  test('keys of any bytes are read back, in the order of their bytes', async () => {
    const level = newLevel<Buffer>({ keyEncoding: 'buffer' })
    const random = new Random(seedOfRun())
    const keys = new Map<string, Buffer>()
    for (const bytes of [
      [],
      [0],
      [0, 0],
      [1],
      [1, 0],
      [1, 1],
      [0, 255],
      [127],
      [128],
      [255],
      [0xc3, 0x28],
      [0xed, 0xa0, 0x80],
    ])
      keys.set(Buffer.from(bytes).toString('hex'), Buffer.from(bytes))
    for (let i = 0; i < 300; i++) {
      const key = Buffer.from(
        Array.from({ length: random.below(6) }, () => [0, 1, 2, 127, 128, 194, 255][random.below(7)]),
      )
      keys.set(key.toString('hex'), key)
    }
    await level.batch([...keys].map(([value, key]) => ({ type: 'put', key, value })))
    const sorted = [...keys.values()].sort(Buffer.compare)
    expect(await level.keys().all()).toEqual(sorted)
    expect(await level.values({ reverse: true }).all()).toEqual(
      sorted.map(key => key.toString('hex')).reverse(),
    )
    for (const bound of sorted.slice(0, 40)) {
      expect(await level.get(bound)).toBe(bound.toString('hex'))
      expect(await level.keys({ gt: bound, limit: 1 }).all()).toEqual(
        sorted.slice(sorted.indexOf(bound) + 1).slice(0, 1),
      )
      expect(await level.keys({ lt: bound, reverse: true, limit: 1 }).all()).toEqual(
        sorted.slice(0, sorted.indexOf(bound)).slice(-1),
      )
    }
  })

  test('text is stored as text and bytes as bytes, and each can be read as the other', async () => {
    const scope = `level-${levels++}`
    const level = new AnnalsLevel(db(), { scope })
    await level.put('text', 'grün')
    await level.put('bytes', new Uint8Array([0x67, 0x72, 0xc3, 0xbc, 0x6e]), { valueEncoding: 'view' })
    expect(await db().kv.entries(scope)).toEqual([
      ['bytes', new Uint8Array([0x67, 0x72, 0xc3, 0xbc, 0x6e])],
      ['text', 'grün'],
    ])
    expect(await level.get('bytes')).toBe('grün')
    expect(await level.get('text', { valueEncoding: 'buffer' })).toEqual(Buffer.from('grün'))
  })

  test('a batch of more than 10,000 operations is one commit', async () => {
    const scope = `level-${levels++}`
    const level = new AnnalsLevel(db(), { scope })
    const puts = Array.from({ length: 12_000 }, (_, i) => ({ type: 'put' as const, key: `k${i}`, value: '' }))
    await level.batch(puts)
    const versions = await Promise.all(['k0', 'k11999'].map(key => db().kv.getVersioned(scope, key)))
    expect(new Set(versions.map(entry => entry?.version)).size).toBe(1)
    expect(await level.getMany(puts.map(({ key }) => key))).toEqual(puts.map(() => ''))
    const broken = [
      ...puts.map(({ key }) => ({ type: 'del' as const, key })),
      { type: 'del' as const, key: 'x'.repeat(2_000) },
    ]
    await expect(level.batch(broken)).rejects.toMatchObject(invalid)
    expect(await level.hasMany(['k0', 'k11999'])).toEqual([true, true])
    await level.clear()
    expect(await level.keys({ limit: 1 }).all()).toEqual([])
  })

  test('iterators and snapshots show the state of their creation', async () => {
    const level = newLevel()
    await level.batch(
      Array.from({ length: 100 }, (_, i) => ({ type: 'put', key: `k${i + 100}`, value: 'old' })),
    )
    const iterator = level.iterator({ keys: false })
    const snapshot = level.snapshot()
    const written = level.put('k100', 'new')
    await Promise.all([written, level.del('k199'), level.put('a', 'new')])
    expect(await iterator.all()).toEqual(Array.from({ length: 100 }, () => [undefined, 'old']))
    expect(await level.get('k100', { snapshot })).toBe('old')
    expect(await level.get('k100')).toBe('new')
    await level.clear({ snapshot })
    expect(await level.keys().all()).toEqual(['a'])
    await snapshot.close()
    await level.close()
  })

  test('iterators without snapshots hold nothing, and see later writes', async () => {
    const level = newLevel({ snapshots: false })
    expect(level.supports.implicitSnapshots).toBe(false)
    const iterator = level.iterator()
    await level.put('a', '1')
    expect(await iterator.next()).toEqual(['a', '1'])
    expect(() => level.snapshot()).toThrow(expect.objectContaining({ code: 'LEVEL_NOT_SUPPORTED' }))
  })

  test('invalid input is a typed error, and nothing is stored', async () => {
    const level = newLevel()
    const long = 'k'.repeat(1_025)
    await expect(level.put(long, '')).rejects.toMatchObject(invalid)
    await expect(level.put('ü'.repeat(257), '')).rejects.toMatchObject(invalid)
    await expect(level.get(long)).rejects.toMatchObject(invalid)
    await expect(
      level.batch([
        { type: 'put', key: 'a', value: '' },
        { type: 'put', key: long, value: '' },
      ]),
    ).rejects.toMatchObject(invalid)
    expect(() => level.iterator({ gt: long })).not.toThrow()
    await expect(level.keys({ gt: long }).all()).rejects.toMatchObject(invalid)
    expect(await level.keys().all()).toEqual([])
    const foreign = newLevel()
    await foreign.open()
    const snapshot = foreign.snapshot()
    await expect(level.get('a', { snapshot })).rejects.toMatchObject(invalid)
    await foreign.close()
    expect(() => new AnnalsLevel(db(), { scope: '' })).toThrow(expect.objectContaining(invalid))
    expect(() => Reflect.construct(AnnalsLevel, [db()])).toThrow(expect.objectContaining(invalid))
    expect(() => Reflect.construct(AnnalsLevel, [db(), { scope: 'a', snapshots: 1 }])).toThrow(
      expect.objectContaining(invalid),
    )
  })
})

test('closing a level leaves the database open, and closing the database fails its iterators', async () => {
  const db = await open({ memory: true })
  const level = new AnnalsLevel(db, { scope: 'level' })
  await level.put('a', '1')
  const iterator = level.iterator()
  await level.close()
  await expect(iterator.next()).rejects.toMatchObject({ code: 'LEVEL_ITERATOR_NOT_OPEN' })
  expect(await db.kv.get('level', 'a')).toBe('1')
  await level.open()
  const late = level.iterator()
  await db.close()
  await expect(late.next()).rejects.toMatchObject({ code: 'CLOSED' })
  await expect(level.get('a')).rejects.toMatchObject({ code: 'CLOSED' })
  const later = level.iterator()
  await expect(later.next()).rejects.toMatchObject({ code: 'CLOSED' })
  await level.close()
})
