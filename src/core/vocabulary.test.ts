import { expect, test } from 'vitest'
import { countText, durationText, timeText } from './vocabulary.ts'

test('timeText accepts every number', () => {
  expect(timeText(0)).toBe('1970-01-01T00:00:00.000Z')
  for (const ms of [8.64e15, 8.64e15 + 1, Number.MAX_VALUE, Number.NaN, Number.POSITIVE_INFINITY, -8.65e15]) {
    expect(typeof timeText(ms)).toBe('string')
  }
})

test('durationText uses the units that fit', () => {
  expect([12, 1_500, 61_000, 3_700_000, 90_000_000, 180_000_000].map(durationText)).toEqual([
    '12 ms',
    '1.5 s',
    '1 min 1 s',
    '1 h 2 min',
    '25 h 0 min',
    '2 d 2 h',
  ])
})

test('countText uses the singular for one', () => {
  expect([0, 1, 1_203].map(count => countText(count, 'event'))).toEqual([
    '0 events',
    '1 event',
    '1,203 events',
  ])
})
