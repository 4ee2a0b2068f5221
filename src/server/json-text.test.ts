import { expect, test } from 'vitest'
import { parseJsonText } from './json-text.ts'

test('an integer that would be rounded is refused at any position', () => {
  for (let before = 0; before < 40; before++) {
    const text = `["${'x'.repeat(before)}",9007199254740993]`
    expect(() => parseJsonText(text), text).toThrow('the number 9007199254740993 would be rounded')
  }
})

test('exact integers, shorter ones, and digits in strings are accepted', () => {
  for (let before = 0; before < 40; before++) {
    const value = ['x'.repeat(before), 9007199254740992, 123456789012345, '9007199254740993']
    expect(parseJsonText(JSON.stringify(value))).toEqual(value)
  }
})
