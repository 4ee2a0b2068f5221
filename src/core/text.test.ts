import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { fromUtf8 } from './bytes.ts'
import { AnnalsError } from './errors.ts'
import { checkText } from './text.ts'

const refusal = (value: unknown, bytesMax: number): AnnalsError => {
  try {
    checkText('key', value, { bytesMax })
  } catch (error) {
    if (error instanceof AnnalsError) return error
    throw error
  }
  throw new Error('it was accepted')
}

describe('texts from users', () => {
  test('a valid text is returned as UTF-8', () => {
    expect(checkText('key', 'a/b', { bytesMax: 3 })).toBe('a/b')
    expect(checkText('key', 'é', { bytesMax: 2 })).toBe('\xc3\xa9')
    expect(checkText('key', '\u0001\n\u007f', { bytesMax: 3 })).toBe('\u0001\n\u007f')
  })

  test('any text is returned as UTF-8 within the limit or refused', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary', maxLength: 12 }),
        fc.integer({ min: 1, max: 20 }),
        (text, bytesMax) => {
          const size = Buffer.byteLength(text)
          if (size === 0 || size > bytesMax || text.includes('\0')) {
            expect(refusal(text, bytesMax).code).toBe('INVALID_ARGUMENT')
          } else {
            expect(fromUtf8(checkText('key', text, { bytesMax }))).toBe(text)
          }
        },
      ),
      { numRuns: 3000 },
    )
  })

  test.each<[unknown, string]>([
    ['', 'empty'],
    ['a'.repeat(1025), 'more than 1024 bytes'],
    ['é'.repeat(513), 'more than 1024 bytes'],
    ['a\0b', 'contains U+0000'],
    ['é\0b', 'contains U+0000'],
    ['\ud800', 'contains a lone surrogate'],
    ['a\udc00', 'contains a lone surrogate'],
    [undefined, 'not a string'],
    [null, 'not a string'],
    [7, 'not a string'],
    [Object('boxed'), 'not a string'],
  ])('%j is refused with its name and the reason', (value, reason) => {
    expect(refusal(value, 1024)).toMatchObject({ code: 'INVALID_ARGUMENT', details: { name: 'key', reason } })
  })
})
