import { describe, expect, test } from 'vitest'
import { safeJson, safeLine, safeText } from './safe-text.ts'

describe('safe text', () => {
  test.each([
    ['\u001b[2J', '\\u001b[2J'],
    ['\u009b31m', '\\u009b31m'],
    ['a\nb\tc\rd', 'a\\nb\\tc\\rd'],
    ['\u2028\u2029', '\\u2028\\u2029'],
    ['\u202eevil\u202c', '\\u202eevil\\u202c'],
    ['a\u200bb\u200cc\u200dd', 'a\\u200bb\\u200cc\\u200dd'],
    ['\u{e0041}', '\\udb40\\udc41'],
    ['\u{e0100}', '\\udb40\\udd00'],
    ['a\ufe0f', 'a\\ufe0f'],
    ['\ud800', '\\ud800'],
  ])('%j is shown as %s', (text, shown) => {
    expect(safeText(text)).toBe(shown)
  })

  test.each([
    'plain',
    'Grüße, 你好, مرحبا',
    'e\u0301',
    '❤\ufe0f',
    '👩\u200d💻',
    '👩🏽\u200d🚀',
    '🏳\ufe0f\u200d🌈',
  ])('%s stays as it is', text => {
    expect(safeText(text)).toBe(text)
  })

  test('colours of the program are kept where colours are on, and all other sequences are shown', () => {
    const line = '\u001b[31mred\u001b[39m \u001b[8mhidden \u001b[2J \n'
    expect(safeLine(line, true)).toBe('\u001b[31mred\u001b[39m \\u001b[8mhidden \\u001b[2J \\n')
    expect(safeLine('\u001b[31mred', false)).toBe('\\u001b[31mred')
  })

  test('JSON still parses to the same value', () => {
    const value = { 'a\u202e': ['\u009b', '\u200b\u{e0041}', '👩\u200d💻', 1] }
    for (const indent of [undefined, 2]) {
      const text = safeJson(value, indent)
      expect(JSON.parse(text)).toEqual(value)
      expect(text).not.toMatch(/[\u009b\u202e\u200b]/)
    }
  })
})
