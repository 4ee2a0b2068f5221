import { describe, expect, test } from 'vitest'
import { u64 } from '../core/bytes.ts'
import type { ErrorCode } from '../core/errors.ts'
import { Random, seedOfRun } from '../testing/random.ts'
import { ReferenceStorage } from '../testing/reference-storage.ts'
import { Database } from './database.ts'
import { HEAD_KEY, headTag, TAGS } from './keys.ts'
import { parseHead, parseLogEntry } from './log.ts'
import type { Write } from './session.ts'
import type { Commit, Entry, Operation, Range, Reader, Storage } from './storage.ts'
import type { ManualTransaction } from './transaction.ts'

const SCOPE = 'run'
const KV = TAGS.kv
const LOG = TAGS.event

/** A storage that records its commits and the snapshots that are still held. */
class WatchedStorage extends ReferenceStorage {
  readonly commits: Commit[] = []
  snapshotsHeld = 0

  override async commit(commit: Commit): ReturnType<Storage['commit']> {
    this.commits.push(commit)
    return super.commit(commit)
  }

  override async snapshot(): ReturnType<Storage['snapshot']> {
    const snapshot = await super.snapshot()
    this.snapshotsHeld++
    return {
      ...snapshot,
      release: () => {
        this.snapshotsHeld--
        snapshot.release()
      },
    }
  }
}

function setUp(): { storage: WatchedStorage; database: Database } {
  const storage = new WatchedStorage()
  return { storage, database: new Database(storage) }
}

async function fill(database: Database, entries: Readonly<Record<string, string>>): Promise<void> {
  await database.transaction(tx => {
    for (const [key, value] of Object.entries(entries)) tx.put(SCOPE, KV, key, value)
  })
}

const range = (more: Partial<Range> = {}): Range => ({ scope: SCOPE, tag: KV, ...more })
const keysOf = (entries: readonly Entry[]): string => entries.map(entry => entry.key).join(' ')
const event = (body: string, dedupe?: string): Parameters<ManualTransaction['append']>[0] => ({
  scope: SCOPE,
  tag: LOG,
  body,
  bodyHash: body.padEnd(32, '.'),
  ...(dedupe === undefined ? {} : { dedupe: { key: dedupe } }),
})

function thrown(action: () => unknown, code: ErrorCode): void {
  expect(action).toThrow(expect.objectContaining({ code }))
}

async function rejected(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  await expect(promise).rejects.toMatchObject({ code })
}

describe('reads', () => {
  test('P4: a transaction sees its own puts and deletes', async () => {
    const { database } = setUp()
    await fill(database, { a: '1', b: '2' })
    const tx = database.begin()
    tx.put(SCOPE, KV, 'a', 'own')
    tx.put(SCOPE, KV, 'c', 'new')
    tx.delete(SCOPE, KV, 'b')
    expect(await tx.get(SCOPE, KV, 'a')).toMatchObject({ value: 'own', version: 0 })
    expect(await tx.get(SCOPE, KV, 'b')).toBeUndefined()
    expect(await tx.get(SCOPE, KV, 'c')).toMatchObject({ value: 'new' })
    expect(keysOf(await tx.scan(range()))).toBe('a c')
    expect(keysOf(await database.scan(range()))).toBe('a b')
    await tx.commit()
    expect(keysOf(await database.scan(range()))).toBe('a c')
  })

  test('P12: a transaction sees the state of its beginning', async () => {
    const { database } = setUp()
    await fill(database, { a: '1' })
    const tx = database.begin({ readOnly: true })
    await fill(database, { a: '2', b: '2' })
    expect(await tx.get(SCOPE, KV, 'a')).toMatchObject({ value: '1' })
    expect(keysOf(await tx.scan(range()))).toBe('a')
    await tx.commit()
  })

  test('P4: a limited scan reads further if own deletes hide entries', async () => {
    const { database } = setUp()
    await fill(database, Object.fromEntries([...'abcdefghij'].map(key => [key, key])))
    const tx = database.begin()
    for (const key of 'abcdef') tx.delete(SCOPE, KV, key)
    expect(keysOf(await tx.scan(range({ limit: 2 })))).toBe('g h')
    for (const key of 'ij') tx.delete(SCOPE, KV, key)
    expect(keysOf(await tx.scan(range({ limit: 2, reverse: true })))).toBe('h g')
    await tx.rollback()
  })

  test('P4: an own put that has already expired is absent', async () => {
    const { database } = setUp()
    const tx = database.begin()
    tx.put(SCOPE, KV, 'a', '1', 1)
    tx.put(SCOPE, KV, 'b', '1', Date.now() + 60_000)
    expect(await tx.get(SCOPE, KV, 'a')).toBeUndefined()
    expect(keysOf(await tx.scan(range()))).toBe('b')
    await tx.rollback()
  })

  test('a scan shows the writes made before it was called, not those made while it runs', async () => {
    const { database } = setUp()
    const tx = database.begin()
    tx.put(SCOPE, KV, 'a', '1')
    const scan = tx.scan(range())
    tx.put(SCOPE, KV, 'b', '1')
    expect(keysOf(await scan)).toBe('a')
    await tx.rollback()
  })

  const seed = seedOfRun()
  test(`P4: scans over own writes return the same entries as scans after the commit (ANNALS_SEED=${seed})`, async () => {
    const random = new Random(seed)
    const keys = Array.from({ length: 12 }, (_, i) => String.fromCharCode(97 + i))
    for (let round = 0; round < 300; round++) {
      const { database } = setUp()
      await fill(database, Object.fromEntries(keys.filter(() => random.chance(0.6)).map(key => [key, 'old'])))
      const asked = Array.from({ length: 6 }, () =>
        range({
          from: random.chance(0.5) ? random.pick(keys) : undefined,
          to: random.chance(0.5) ? random.pick(keys) : undefined,
          reverse: random.chance(0.5),
          limit: random.chance(0.7) ? 1 + random.below(6) : undefined,
        }),
      )
      const tx = database.begin()
      for (let i = random.below(12); i > 0; i--) {
        if (random.chance(0.6)) tx.delete(SCOPE, KV, random.pick(keys))
        else tx.put(SCOPE, KV, random.pick(keys), 'new')
      }
      const before = await Promise.all(asked.map(range => tx.scan(range)))
      await tx.commit()
      const after = await Promise.all(asked.map(range => database.scan(range)))
      const told = (scans: readonly (readonly Entry[])[]): string[] =>
        scans.map(scan => scan.map(({ key, value }) => key + value).join(' '))
      expect(told(before)).toEqual(told(after))
    }
  })
})

describe('the validation of a commit', () => {
  test('P12: covers each point with its version, 0 if absent, and each range with its entries', async () => {
    const { storage, database } = setUp()
    await fill(database, { a: '1', b: '2' })
    const tx = database.begin()
    const a = await tx.get(SCOPE, KV, 'a')
    await tx.get(SCOPE, KV, 'none')
    const [b] = await tx.scan(range({ from: 'b' }))
    tx.put(SCOPE, KV, 'c', '3')
    await tx.commit()
    expect(storage.commits.at(-1)).toMatchObject({
      points: [
        { key: 'a', version: a!.version },
        { key: 'none', version: 0 },
      ],
      ranges: [{ from: 'b', found: [{ key: 'b', version: b.version }] }],
    })
  })

  test('a read that an earlier one covers is not recorded again', async () => {
    const { storage, database } = setUp()
    await fill(database, { a: '1', b: '2', c: '3' })
    const tx = database.begin()
    for (let i = 0; i < 3; i++) await tx.get(SCOPE, KV, 'z')
    for (let i = 0; i < 3; i++) await tx.scan(range({ limit: 2 }))
    await tx.get(SCOPE, KV, 'a')
    await tx.get(SCOPE, KV, 'aa')
    await tx.get(SCOPE, KV, 'c')
    tx.put(SCOPE, KV, 'own', '1')
    await tx.get(SCOPE, KV, 'own')
    await tx.commit()
    const { points, ranges } = storage.commits.at(-1)!
    // 'c' is after the last key of the limited range.
    expect(points?.map(point => point.key)).toEqual(['z', 'c'])
    expect(ranges).toHaveLength(1)
  })

  test('P12: blind writes and appends never conflict', async () => {
    const { database } = setUp()
    await fill(database, { a: '1', b: '1' })
    const first = database.begin()
    const second = database.begin()
    for (const tx of [first, second]) {
      tx.put(SCOPE, KV, 'a', '2')
      tx.delete(SCOPE, KV, 'b')
      tx.append(event('x'))
      await tx.commit()
    }
    expect(await database.scan({ scope: SCOPE, tag: LOG })).toHaveLength(2)
  })

  test('P12: the first to commit wins, and the other gets CONFLICT with the key', async () => {
    const { database } = setUp()
    const [first, second] = [database.begin(), database.begin()]
    for (const tx of [first, second]) {
      await tx.get(SCOPE, KV, 'a')
      tx.put(SCOPE, KV, 'a', '1')
    }
    await first.commit()
    await expect(second.commit()).rejects.toMatchObject({
      code: 'CONFLICT',
      details: { attempts: 1, on: { scope: SCOPE, tag: KV, key: 'a' } },
    })
  })

  test('P12: a phantom in a scan over own writes is a conflict', async () => {
    const { database } = setUp()
    await fill(database, { a: '1', b: '1' })
    const tx = database.begin()
    tx.delete(SCOPE, KV, 'a')
    expect(keysOf(await tx.scan(range({ limit: 1 })))).toBe('b')
    await fill(database, { aa: '1' })
    await rejected(tx.commit(), 'CONFLICT')
  })

  test('P12: a transaction without writes is not validated, and commits nothing', async () => {
    const { storage, database } = setUp()
    await fill(database, { a: '1' })
    const tx = database.begin()
    await tx.get(SCOPE, KV, 'a')
    await fill(database, { a: '2' })
    const commits = storage.commits.length
    expect(await tx.commit()).toMatchObject({ status: 'committed', version: 1, appended: [] })
    expect(storage.commits).toHaveLength(commits)
  })

  test('P4: only the last write of a key is committed', async () => {
    const { storage, database } = setUp()
    await database.transaction(tx => {
      tx.put(SCOPE, KV, 'a', '1')
      tx.delete(SCOPE, KV, 'a')
      tx.delete(SCOPE, KV, 'b')
      tx.put(SCOPE, KV, 'b', '2')
    })
    expect(storage.commits[0].operations).toMatchObject([
      { op: 'delete', key: 'a' },
      { op: 'put', key: 'b', value: '2' },
    ])
  })
})

describe('appends', () => {
  const append = (body: string): Operation => ({ op: 'append', ...event(body) })
  const bodies = async (reader: Reader): Promise<string[]> =>
    (await reader.scan({ scope: SCOPE, tag: LOG })).map(entry => parseLogEntry(entry).body)

  test('P12: appends whose results are not read do not conflict, and have their results after the commit', async () => {
    const { database } = setUp()
    const [one, other] = [database.begin(), database.begin()]
    const first = await one.append(event('a'))
    const second = await other.append(event('b'))
    const third = await one.append(event('c'))
    await other.commit()
    const { appended } = await one.commit()
    expect([second.sequence, first.sequence, third.sequence]).toEqual([0, 1, 2])
    expect([first, third].map(({ hash, time }) => ({ hash, time }))).toEqual(
      appended.map(({ hash, time }) => ({ hash, time })),
    )
    expect(await bodies(database)).toEqual(['b', 'a', 'c'])
  })

  test('after a rollback an append has no result', async () => {
    const { database } = setUp()
    const tx = database.begin()
    const appended = await tx.append(event('a'))
    await tx.rollback()
    thrown(() => appended.sequence, 'INVALID_OPERATION')
  })

  test('reading the result of an append before the commit gives its final values, and makes other appends conflict', async () => {
    const { database } = setUp()
    await database.write([append('0')])
    const tx = database.begin()
    const appended = await Promise.all([
      tx.append(event('1')),
      tx.append({ ...event('x'), scope: 'other' }),
      tx.append(event('2')),
    ])
    const shown = appended.map(({ sequence, hash, time }) => ({ sequence, hash, time }))
    expect(shown.map(({ sequence }) => sequence)).toEqual([1, 0, 2])
    expect((await tx.commit()).appended).toMatchObject(shown)

    const late = database.begin()
    expect((await late.append(event('3'))).sequence).toBe(3)
    await database.write([append('in between')])
    await rejected(late.commit(), 'CONFLICT')
    expect(await bodies(database)).toEqual(['0', '1', '2', 'in between'])
  })

  test('P4: own appends can be read one by one, as a range and through the head', async () => {
    const { database } = setUp()
    await database.write([append('0')])
    const tx = database.begin()
    await tx.append(event('1'))
    expect(await bodies(tx)).toEqual(['0', '1'])
    await tx.append(event('2'))
    expect(await bodies(tx)).toEqual(['0', '1', '2'])
    const found = await tx.scan({ scope: SCOPE, tag: LOG, reverse: true, limit: 2 })
    expect(found.map(entry => parseLogEntry(entry).body)).toEqual(['2', '1'])
    expect(await tx.get(SCOPE, LOG, u64(3))).toBeUndefined()
    const head = parseHead(await tx.get(SCOPE, headTag(LOG), HEAD_KEY))
    expect(head).toMatchObject({ length: 3, hash: parseLogEntry(found[0]).hash })
    await tx.commit()
    expect(parseHead(await database.get(SCOPE, headTag(LOG), HEAD_KEY))).toEqual(head)
    const stored = await database.scan({ scope: SCOPE, tag: LOG, reverse: true, limit: 2 })
    expect(stored.map(parseLogEntry)).toEqual(found.map(parseLogEntry))
  })

  test('an append with a dedupe key has no sequence before its commit', async () => {
    const { database } = setUp()
    const tx = database.begin()
    const first = await tx.append(event('a', 'once'))
    const second = await tx.append(event('b', 'once'))
    thrown(() => first.sequence, 'INVALID_OPERATION')
    await rejected(tx.scan({ scope: SCOPE, tag: LOG }), 'INVALID_OPERATION')
    await tx.commit()
    expect([first, second]).toMatchObject([
      { sequence: 0, duplicate: false },
      { sequence: 0, duplicate: true, hash: first.hash },
    ])
  })
})

describe('steps', () => {
  const place = { scope: SCOPE, tag: KV, key: 'n' }
  const increment = (tx: ManualTransaction): Promise<{ result: number }> =>
    tx.update([place], ([entry]) => {
      const next = Number(entry?.value ?? 0) + 1
      return { operations: [{ op: 'put', ...place, value: String(next) }], result: next }
    })

  test('P4: concurrent steps of one transaction run one after the other', async () => {
    const { database } = setUp()
    const tx = database.begin()
    const results = await Promise.all([increment(tx), increment(tx), increment(tx)])
    expect(results.map(({ result }) => result)).toEqual([1, 2, 3])
    await tx.commit()
    expect((await database.get(SCOPE, KV, 'n'))?.value).toBe('3')
  })

  test('P12: the reads of a step are validated', async () => {
    const { database } = setUp()
    const tx = database.begin()
    await increment(tx)
    await database.write([{ op: 'put', ...place, value: '7' }])
    await rejected(tx.commit(), 'CONFLICT')
  })

  const ranges = [{ ...range({ from: 'q' }), limit: 1 }]
  const claim = (tx: ManualTransaction): Promise<{ result: string | undefined }> =>
    tx.update<string | undefined>(
      [],
      (_, [[first]]) => ({
        operations: first === undefined ? [] : [{ op: 'delete', scope: SCOPE, tag: KV, key: first.key }],
        result: first?.key,
      }),
      { ranges },
    )

  test('P23: the ranges of concurrent steps see the writes of the transaction', async () => {
    const { database } = setUp()
    await fill(database, { q1: '1', q2: '2', q4: '4' })
    const tx = database.begin()
    tx.put(SCOPE, KV, 'q3', '3')
    tx.delete(SCOPE, KV, 'q1')
    const claims = await Promise.all(Array.from({ length: 4 }, () => claim(tx)))
    expect(claims.map(({ result }) => result)).toEqual(['q2', 'q3', 'q4', undefined])
    await tx.commit()
    expect(await database.scan(range())).toEqual([])
  })

  test('P23: the ranges of a step are validated', async () => {
    const { database } = setUp()
    await fill(database, { q2: '2' })
    const tx = database.begin()
    await claim(tx)
    await fill(database, { q1: '1' })
    await rejected(tx.commit(), 'CONFLICT')
    await rejected(
      database.begin().update([], () => ({ operations: [], result: 0 }), {
        ranges: [{ ...range(), limit: 0 }],
      }),
      'INVALID_ARGUMENT',
    )
  })

  test('P5: a refused step writes nothing', async () => {
    const { database } = setUp()
    const tx = database.begin()
    const broken: Write[] = [
      { op: 'put', ...place, value: '1' },
      { op: 'put', ...place, key: '', value: '1' },
    ]
    await rejected(
      tx.update([], () => ({ operations: broken, result: 0 })),
      'INVALID_ARGUMENT',
    )
    expect(await tx.get(SCOPE, KV, 'n')).toBeUndefined()
    await tx.rollback()
  })
})

describe('the end of a transaction', () => {
  const ends: Readonly<Record<string, (tx: ManualTransaction) => Promise<unknown>>> = {
    commit: tx => tx.commit(),
    rollback: tx => tx.rollback(),
  }
  for (const [name, end] of Object.entries(ends)) {
    test(`P4: any use after ${name} gets INVALID_OPERATION`, async () => {
      const { storage, database } = setUp()
      const tx = database.begin()
      await end(tx)
      await rejected(tx.get(SCOPE, KV, 'a'), 'INVALID_OPERATION')
      await rejected(tx.scan(range()), 'INVALID_OPERATION')
      thrown(() => tx.put(SCOPE, KV, 'a', '1'), 'INVALID_OPERATION')
      thrown(() => tx.delete(SCOPE, KV, 'a'), 'INVALID_OPERATION')
      await rejected(tx.append(event('a')), 'INVALID_OPERATION')
      await rejected(
        tx.update([], () => ({ operations: [], result: 0 })),
        'INVALID_OPERATION',
      )
      await rejected(tx.commit(), 'INVALID_OPERATION')
      await rejected(tx.rollback(), 'INVALID_OPERATION')
      expect(storage.snapshotsHeld).toBe(0)
    })
  }

  test('P4: a write in a read-only transaction gets INVALID_OPERATION, and later reads succeed', async () => {
    const { database } = setUp()
    await fill(database, { a: '1' })
    const tx = database.begin({ readOnly: true })
    thrown(() => tx.put(SCOPE, KV, 'a', '1'), 'INVALID_OPERATION')
    thrown(() => tx.delete(SCOPE, KV, 'a'), 'INVALID_OPERATION')
    await rejected(tx.append(event('a')), 'INVALID_OPERATION')
    expect(await tx.get(SCOPE, KV, 'a')).toMatchObject({ value: '1' })
    await tx.commit()
  })

  test('the snapshot is held until the last pending read ends, and then released', async () => {
    const { storage, database } = setUp()
    await fill(database, { a: '1' })
    const tx = database.begin()
    const read = tx.get(SCOPE, KV, 'a')
    await tx.rollback()
    expect(await read).toMatchObject({ value: '1' })
    await new Promise(setImmediate)
    expect(storage.snapshotsHeld).toBe(0)
  })

  test('P5: a malformed operation throws at its call, and the others can be committed', async () => {
    const { database } = setUp()
    const tx = database.begin()
    thrown(() => tx.put(SCOPE, KV, '', '1'), 'INVALID_ARGUMENT')
    thrown(() => tx.put(SCOPE, KV, 'k'.repeat(4097), '1'), 'INVALID_ARGUMENT')
    thrown(() => tx.put(SCOPE, LOG, 'k', '1'), 'INVALID_OPERATION')
    await rejected(tx.append({ ...event('a'), tag: KV }), 'INVALID_OPERATION')
    await rejected(tx.get(SCOPE, KV, ''), 'INVALID_ARGUMENT')
    await rejected(tx.scan(range({ limit: 0 })), 'INVALID_ARGUMENT')
    tx.put(SCOPE, KV, 'k', '1')
    await tx.commit()
    expect(keysOf(await database.scan(range()))).toBe('k')
  })

  test('a transaction can hold 256 MiB, and replacing a value frees its old size', async () => {
    const { database } = setUp()
    const tx = database.begin()
    const value = 'x'.repeat(16 * 1024 * 1024)
    for (let i = 0; i < 15; i++) tx.put(SCOPE, KV, `${i}`, value)
    for (let i = 0; i < 15; i++) tx.put(SCOPE, KV, `${i}`, value)
    thrown(() => tx.put(SCOPE, KV, 'more', value), 'INVALID_ARGUMENT')
    await rejected(tx.append({ ...event(value), bodyHash: 'h'.repeat(32) }), 'INVALID_ARGUMENT')
    tx.delete(SCOPE, KV, '0')
    tx.put(SCOPE, KV, 'more', value)
    await tx.rollback()
  })
})
