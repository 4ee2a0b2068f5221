import { describe, expect, test } from 'vitest'
import { TAGS } from './keys.ts'
import { checkOperation, checkPlace, checkRange } from './operations.ts'
import type { Append, Operation, Put } from './storage.ts'

const PUT: Put = { op: 'put', scope: 'default:a', tag: TAGS.kv, key: 'k', value: 'v' }
const APPEND: Append = { op: 'append', scope: 'a', tag: TAGS.event, body: 'b', bodyHash: 'h'.repeat(32) }
const DROP: Operation = { op: 'drop', scope: 'a' }

/** The first two have a valid length, as a string would. */
const OTHERS: readonly unknown[] = [Buffer.alloc(32, 'h'), new Array(32).fill('h'), 7, null, undefined]

function refusal(name: string): object {
  return expect.objectContaining({ code: 'INVALID_ARGUMENT', details: { name } })
}

describe('a field that is not a string is INVALID_ARGUMENT with its name', () => {
  test.each<[name: string, kind: string, operation: Operation]>([
    ['scope', 'a put', PUT],
    ['key', 'a put', PUT],
    ['value', 'a put', PUT],
    ['scope', 'an append', APPEND],
    ['body', 'an append', APPEND],
    ['bodyHash', 'an append', APPEND],
    ['scope', 'a drop', DROP],
  ])('%s of %s', (name, _, operation) => {
    for (const other of OTHERS) {
      expect(() => checkOperation({ ...operation, [name]: other } as Operation)).toThrow(refusal(name))
    }
    expect(() => checkOperation(operation)).not.toThrow()
  })

  test('the dedupe key, its memo and the feed of an append', () => {
    const other = Buffer.from('k') as never
    expect(() => checkOperation({ ...APPEND, dedupe: { key: other } })).toThrow(refusal('dedupe.key'))
    const dedupe = { key: 'k', memo: other }
    expect(() => checkOperation({ ...APPEND, dedupe })).toThrow(refusal('dedupe.memo'))
    expect(() => checkOperation({ ...APPEND, feed: other })).toThrow(refusal('scope'))
  })

  test('the scope and the key of a read', () => {
    for (const other of OTHERS) {
      expect(() => checkPlace({ ...PUT, scope: other as never })).toThrow(refusal('scope'))
      expect(() => checkPlace({ ...PUT, key: other as never })).toThrow(refusal('key'))
      expect(() => checkRange({ ...PUT, scope: other as never })).toThrow(refusal('scope'))
    }
  })
})
