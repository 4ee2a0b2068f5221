import { expect } from 'vitest'
import type { ErrorCode } from '../../core/errors.ts'
import { dedupeTag, TAGS } from '../../engine/keys.ts'
import { parseLogEntry } from '../../engine/log.ts'
import { COMMIT_BYTES_MAX } from '../../engine/operations.ts'
import type { Operation } from '../../engine/storage.ts'
import {
  append,
  commit,
  del,
  expectError,
  KV,
  keysOf,
  LOG,
  put,
  range,
  SCOPE,
  type Suite,
  valueAt,
} from './suite.ts'

/** Operations that every engine must refuse, each with its error code. */
const REFUSED: readonly (readonly [what: string, code: ErrorCode, operation: Operation])[] = [
  ['a key of 0 bytes', 'INVALID_ARGUMENT', put('', 'x')],
  ['a key of 4,097 bytes', 'INVALID_ARGUMENT', put('k'.repeat(4097), 'x')],
  ['a delete of a key of 0 bytes', 'INVALID_ARGUMENT', del('')],
  ['a scope of 0 bytes', 'INVALID_ARGUMENT', put('k', 'x', { scope: '' })],
  ['a key that is text, not bytes', 'INVALID_ARGUMENT', put('ключ', 'x')],
  ['a value that is text, not bytes', 'INVALID_ARGUMENT', put('k', '値')],
  ['a scope that is text, not bytes', 'INVALID_ARGUMENT', put('k', 'x', { scope: 't:a:g:\u0100' })],
  ['a body that is text, not bytes', 'INVALID_ARGUMENT', append('値', { bodyHash: 'h'.repeat(32) })],
  ['tag 0', 'INVALID_ARGUMENT', put('k', 'x', { tag: 0 })],
  ['tag 256', 'INVALID_ARGUMENT', put('k', 'x', { tag: 256 })],
  ['an expiry that is not a whole number', 'INVALID_ARGUMENT', put('k', 'x', { expiresAt: Number.NaN })],
  ['a time that is not a whole number', 'INVALID_ARGUMENT', put('k', 'x', { time: 1.5 })],
  ['a time before 1970', 'INVALID_ARGUMENT', put('k', 'x', { time: -1 })],
  ['an expiry before 1970', 'INVALID_ARGUMENT', put('k', 'x', { expiresAt: -1 })],
  ['P7: a put into an event log', 'INVALID_OPERATION', put('\0\0\0\0\0\0\0\0', 'x', { tag: TAGS.event })],
  ['P7: a delete from an event log', 'INVALID_OPERATION', del('\0\0\0\0\0\0\0\0', { tag: TAGS.event })],
  ['P7: a put into the ledger', 'INVALID_OPERATION', put('\0\0\0\0\0\0\0\0', 'x', { tag: TAGS.ledger })],
  ['P7: a delete from the ledger', 'INVALID_OPERATION', del('\0\0\0\0\0\0\0\0', { tag: TAGS.ledger })],
  ['a put among the dedupe keys', 'INVALID_OPERATION', put('once', 'x', { tag: dedupeTag(LOG) })],
  ['a delete among the dedupe keys', 'INVALID_OPERATION', del('once', { tag: dedupeTag(LOG) })],
  ['an append to a tree that is not a log', 'INVALID_OPERATION', append('x', { tag: KV })],
  ['an append with a body hash of 31 bytes', 'INVALID_ARGUMENT', append('x', { bodyHash: 'h'.repeat(31) })],
  ['an append with a dedupe key of 0 bytes', 'INVALID_ARGUMENT', append('x', { dedupe: { key: '' } })],
  [
    'an append with a dedupe key of 4,097 bytes',
    'INVALID_ARGUMENT',
    append('x', { dedupe: { key: 'k'.repeat(4097) } }),
  ],
]

/** P4, P5: a commit applies all of its operations or none, in the order that the program gave. */
export function testCommits(suite: Suite): void {
  suite.holds('an entry that is put with an explicit time has that time for every reader', async storage => {
    const { time } = await commit(storage, put('old', '1', { time: 1_000 }), put('new', '2'))
    expect(time).toBeGreaterThan(1_000)
    const snapshot = await storage.snapshot()
    for (const reader of [storage, snapshot]) {
      expect((await reader.get(SCOPE, KV, 'old'))?.time).toBe(1_000)
      expect((await reader.scan(range())).map(entry => entry.time)).toEqual([time, 1_000])
    }
    snapshot.release()
    const again = await commit(storage, put('old', '3'))
    expect((await storage.get(SCOPE, KV, 'old'))?.time).toBe(again.time)
    expect(again.time).toBeGreaterThanOrEqual(time)
  })

  suite.holds(
    'the times of a commit and of all later commits are not before the time of an entry that it puts',
    async storage => {
      const ahead = storage.now() + 3_600_000
      const { time } = await commit(storage, put('ahead', '1', { time: ahead }), put('beside', '2'))
      expect(time).toBe(ahead)
      expect((await storage.get(SCOPE, KV, 'ahead'))?.time).toBe(ahead)
      expect((await storage.get(SCOPE, KV, 'beside'))?.time).toBe(ahead)
      expect(storage.now()).toBeGreaterThanOrEqual(ahead)
      expect((await commit(storage, put('later', '3'))).time).toBeGreaterThanOrEqual(ahead)
    },
  )

  suite.holds('P5: a commit over several trees and a log is atomic', async storage => {
    const elsewhere = { scope: 'elsewhere', tag: TAGS.state }
    const { version, time, appended } = await commit(
      storage,
      put('a', '1'),
      append('happened'),
      put('b', '2', elsewhere),
      del('c'),
    )
    expect(appended).toHaveLength(1)
    for (const entry of [
      await storage.get(SCOPE, KV, 'a'),
      await storage.get(elsewhere.scope, elsewhere.tag, 'b'),
      (await storage.scan(range({ tag: LOG })))[0],
    ]) {
      expect(entry).toMatchObject({ version, time, expiresAt: 0 })
    }
  })

  suite.holds('P4: operations of one commit apply in order, so the last one on a key wins', async storage => {
    await commit(storage, put('a', '1'), del('a'), put('b', '1'), put('b', '2'), del('c'), put('c', '3'))
    expect(await storage.scan(range())).toMatchObject([
      { key: 'b', value: '2' },
      { key: 'c', value: '3' },
    ])
  })

  suite.holds('a value may be empty, and may hold every byte', async storage => {
    const bytes = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte)).join('')
    await commit(storage, put('empty', ''), put('bytes', bytes))
    expect(await valueAt(storage, 'empty')).toBe('')
    expect(await valueAt(storage, 'bytes')).toBe(bytes)
  })

  suite.holds(
    'P17: a value of 16 MiB can be written and read back, as an entry and as an event',
    async storage => {
      const big = 'abcdefghijklmno\xff'.repeat(1024 * 1024)
      await commit(storage, put('big', big), append(big), put('small', 'x'))
      expect((await valueAt(storage, 'big')) === big).toBe(true)
      const [event] = await storage.scan(range({ tag: LOG }))
      expect(parseLogEntry(event).body === big).toBe(true)
      await commit(storage, del('big'))
      expect(keysOf(await storage.scan(range()))).toEqual(['small'])
    },
  )

  suite.holds('deleting a missing key changes nothing', async storage => {
    await commit(storage, put('a', '1'))
    await commit(storage, del('b'), del('a', { scope: 'elsewhere' }))
    expect(keysOf(await storage.scan(range()))).toEqual(['a'])
    expect(await storage.scan(range({ scope: 'elsewhere' }))).toEqual([])
  })

  suite.holds('P12: versions grow from commit to commit, and times never go back', async storage => {
    let last = { version: 0, time: 0 }
    for (let i = 0; i < 100; i++) {
      const { version, time } = await commit(storage, put(`key ${i % 7}`, `${i}`))
      expect(version).toBeGreaterThan(last.version)
      expect(time).toBeGreaterThanOrEqual(last.time)
      expect(await storage.get(SCOPE, KV, `key ${i % 7}`)).toMatchObject({ version, time })
      last = { version, time }
    }
  })

  suite.holds('P12: concurrent commits all succeed, each with a version of its own', async storage => {
    const outcomes = await Promise.all(
      Array.from({ length: 200 }, (_, i) => commit(storage, put(`${i}`, `${i}`), put('last', `${i}`))),
    )
    expect(new Set(outcomes.map(outcome => outcome.version)).size).toBe(200)
    expect(await storage.scan(range())).toHaveLength(201)
    const latest = outcomes.reduce((a, b) => (a.version > b.version ? a : b))
    expect((await storage.get(SCOPE, KV, 'last'))?.version).toBe(latest.version)
  })

  for (const [what, code, operation] of REFUSED) {
    suite.holds(`${what} is ${code} and changes nothing, in a commit and in an update`, async storage => {
      const { version } = await commit(
        storage,
        put('before', '1'),
        append('before', { dedupe: { key: 'once' } }),
      )
      const operations = [put('beside', 'x'), append('beside'), operation, del('before')]
      await expectError(storage.commit({ operations }), code)
      await expectError(
        storage.update([], () => ({ operations, result: undefined })),
        code,
      )
      expect(await storage.scan(range())).toMatchObject([{ key: 'before', value: '1', version }])
      expect(await storage.scan(range({ tag: LOG }))).toHaveLength(1)
      const { appended } = await commit(
        storage,
        append('after'),
        append('again', { dedupe: { key: 'once' } }),
      )
      expect(appended).toMatchObject([{ sequence: 1 }, { sequence: 0, duplicate: true }])
    })
  }

  suite.holds('a commit above 256 MiB is INVALID_ARGUMENT and changes nothing', async storage => {
    const value = 'x'.repeat(16 * 1024 * 1024)
    const operations = Array.from({ length: COMMIT_BYTES_MAX / value.length }, (_, i) => put(`${i}`, value))
    await expectError(storage.commit({ operations }), 'INVALID_ARGUMENT')
    expect(await storage.scan(range())).toEqual([])
  })

  suite.holds('a read of a malformed place or range is INVALID_ARGUMENT', async storage => {
    await expectError(storage.get(SCOPE, KV, ''), 'INVALID_ARGUMENT')
    await expectError(storage.get(SCOPE, KV, 'k'.repeat(4097)), 'INVALID_ARGUMENT')
    await expectError(storage.get('', KV, 'k'), 'INVALID_ARGUMENT')
    for (const limit of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      await expectError(storage.scan(range({ limit })), 'INVALID_ARGUMENT')
    }
    await expectError(
      storage.update([{ scope: SCOPE, tag: KV, key: '' }], () => ({ operations: [], result: 1 })),
      'INVALID_ARGUMENT',
    )
  })
}
