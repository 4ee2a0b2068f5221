import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { AnnalsError } from './errors.ts'
import { formatRfc3339, isRfc3339, parseRfc3339 } from './time.ts'

const YEAR_0000 = Date.parse('0000-01-01T00:00:00.000Z')
const YEAR_9999_END = Date.parse('9999-12-31T23:59:59.999Z')

describe('RFC 3339', () => {
  test('every millisecond of the years 0000 to 9999 is written and read back', () => {
    fc.assert(
      fc.property(fc.integer({ min: YEAR_0000, max: YEAR_9999_END }), ms => {
        expect(parseRfc3339(formatRfc3339(ms))).toBe(ms)
      }),
      { numRuns: 5000 },
    )
  })

  test('exactly the days of the calendar from 1590 to 2410 are valid', () => {
    const wrong: string[] = []
    for (let year = 1590; year <= 2410; year += 1) {
      for (let month = 1; month <= 12; month++) {
        for (let day = 0; day <= 32; day++) {
          const date = `${year}-${String(month).padStart(2, '0')}-${String(day).padStart(2, '0')}`
          const ms = Date.UTC(year, month - 1, day)
          const exists = new Date(ms).getUTCDate() === day
          if (parseRfc3339(`${date}T00:00:00Z`) !== (exists ? ms : undefined)) wrong.push(date)
        }
      }
    }
    expect(wrong).toEqual([])
  })

  test.each([
    ['1970-01-01T00:00:00Z', 0],
    ['1970-01-01T00:00:00+00:00', 0],
    ['1969-12-31T23:59:59.999Z', -1],
    ['0000-01-01T00:00:00Z', YEAR_0000],
    ['0099-12-31T00:00:00Z', Date.parse('0099-12-31T00:00:00.000Z')],
    ['9999-12-31T23:59:59.999Z', YEAR_9999_END],
    ['2000-02-29T12:34:56Z', 951_827_696_000],
    ['2024-02-29T12:34:56.7Z', 1_709_210_096_700],
    ['2024-02-29T12:34:56.078Z', 1_709_210_096_078],
    ['2024-02-29T12:34:56.789999999999999999999Z', 1_709_210_096_789],
  ])('%s is %d', (text, ms) => {
    expect(parseRfc3339(text)).toBe(ms)
  })

  test.each([
    '2023-02-29T00:00:00Z',
    '1900-02-29T00:00:00Z',
    '2024-02-30T00:00:00Z',
    '2024-04-31T00:00:00Z',
    '2024-00-01T00:00:00Z',
    '2024-13-01T00:00:00Z',
    '2024-01-00T00:00:00Z',
    '2024-01-01T24:00:00Z',
    '2024-01-01T00:60:00Z',
    '2016-12-31T23:59:60Z',
    '2024-01-01t00:00:00Z',
    '2024-01-01T00:00:00z',
    '2024-01-01 00:00:00Z',
    '2024-01-01T00:00:00',
    '2024-01-01T00:00Z',
    '2024-01-01',
    '2024-01-01T00:00:00.Z',
    '2024-01-01T00:00:00,5Z',
    '24-01-01T00:00:00Z',
    '+02024-01-01T00:00:00Z',
    '-0001-01-01T00:00:00Z',
    '2024-1-1T00:00:00Z',
    '2024-01-01T00:00:00+0000',
    '2024-01-01T00:00:00+00',
    '2024-01-01T00:00:00-00:00',
    '2024-01-01T00:00:00+01:00',
    '2024-01-01T00:00:00Z ',
    ' 2024-01-01T00:00:00Z',
    '2024-01-01T00:00:00Z\n',
    '٢٠٢٤-01-01T00:00:00Z',
    '',
  ])('%j is refused', text => {
    expect(parseRfc3339(text)).toBeUndefined()
  })

  test.each([
    ['2024-01-01T01:30:00+01:30', Date.UTC(2024, 0, 1)],
    ['2023-12-31T16:00:00-08:00', Date.UTC(2024, 0, 1)],
    ['2024-01-01T00:00:00-00:00', Date.UTC(2024, 0, 1)],
    ['2024-01-01T00:00:00Z', Date.UTC(2024, 0, 1)],
    ['2024-01-01T00:00:00+24:00', undefined],
    ['2024-01-01T00:00:00+00:60', undefined],
    ['2024-01-01T00:00:00+0100', undefined],
  ])('%s with any offset is %s', (text, ms) => {
    expect(parseRfc3339(text, { offset: 'any' })).toBe(ms)
  })

  test.each([Number.NaN, 0.5, Number.POSITIVE_INFINITY, YEAR_0000 - 1, YEAR_9999_END + 1])(
    '%d cannot be formatted',
    ms => {
      expect(() => formatRfc3339(ms)).toThrow(AnnalsError)
    },
  )

  test('the check of a text agrees with the parser, also with one character changed', () => {
    const some = fc.integer({ min: YEAR_0000, max: YEAR_9999_END }).map(formatRfc3339)
    const char = fc.constantFrom(...'0123456789-:.TZtz+ /')
    fc.assert(
      fc.property(some, fc.nat({ max: 23 }), char, (text, at, other) => {
        const changed = text.slice(0, at) + other + text.slice(at + 1)
        for (const each of [text, changed]) expect(isRfc3339(each)).toBe(parseRfc3339(each) !== undefined)
      }),
      { numRuns: 5000 },
    )
  })
})
