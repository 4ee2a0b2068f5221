import { describe, expect, test } from 'vitest'
import { isUuidV4, newId, newOrderedId } from './id.ts'

describe('ids', () => {
  test('a new id is a UUID v4, and never the same twice', () => {
    const ids = Array.from({ length: 1000 }, () => newId())
    expect(ids.every(isUuidV4)).toBe(true)
    expect(new Set(ids).size).toBe(1000)
  })

  test('the same random bytes give the same id, whatever the bytes', () => {
    expect(newId(count => new Uint8Array(count))).toBe('00000000-0000-4000-8000-000000000000')
    expect(newId(count => new Uint8Array(count).fill(255))).toBe('ffffffff-ffff-4fff-bfff-ffffffffffff')
    expect(newId(count => Uint8Array.from({ length: count }, (_, i) => i))).toBe(
      '00010203-0405-4607-8809-0a0b0c0d0e0f',
    )
  })

  test('the given random bytes are not modified', () => {
    const bytes = new Uint8Array(16).fill(255)
    newId(() => bytes)
    expect(bytes.every(byte => byte === 255)).toBe(true)
  })

  test.each([
    ['00000000-0000-4000-8000-000000000000', true],
    ['ABCDEF00-0000-4000-B000-000000000000', true],
    ['00000000-0000-1000-8000-000000000000', false],
    ['00000000-0000-5000-8000-000000000000', false],
    ['00000000-0000-4000-7000-000000000000', false],
    ['00000000-0000-4000-c000-000000000000', false],
    ['0000000000004000800000000000000000000', false],
    // The lowest eight bits of these characters are digits.
    ['00000000-0000-4000-8000-0000000000\u0130\u0141', false],
    ['00000000-0000-4000-8000-00000000000-', false],
    ['0-0000000000-4000-8000-0000000000000', false],
    ['00000000-0000-4000-8000-00000000000g', false],
    ['00000000-0000-4000-8000-000000000000\n', false],
    [' 0000000-0000-4000-8000-000000000000', false],
    ['', false],
    [undefined, false],
    [7, false],
  ])('%j is a UUID v4: %s', (text, expected) => {
    expect(isUuidV4(text)).toBe(expected)
  })
})

test('ordered ids are UUIDs v7 and sort in the order in which they were made, whatever the clock does', () => {
  const ids: string[] = []
  for (const now of [1_700_000_000_000, 1_700_000_000_001, 1_699_999_999_999, 1_700_000_000_001]) {
    for (let i = 0; i < 3_000; i++) ids.push(newOrderedId(now))
  }
  expect([...ids].sort()).toEqual(ids)
  expect(new Set(ids).size).toBe(ids.length)
  for (const id of ids)
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
})
