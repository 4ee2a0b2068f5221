import { describe, expect, test } from 'vitest'
import { bytea, decoded, encoded, int4, record } from './wire.ts'

const PAIR = record<{ number: number; bytes: string }>({ number: int4, bytes: bytea })

describe('the encoder of parameters', () => {
  test("a value that can't be encoded leaves no bytes in the next parameter", () => {
    const expected = encoded(PAIR, { number: 1, bytes: 'abc' })
    const invalid = { number: 1, bytes: Buffer.from('abc') as never }
    expect(() => encoded(PAIR, invalid)).toThrow(TypeError)
    const next = encoded(PAIR, { number: 1, bytes: 'abc' })
    expect(next).toEqual(expected)
    expect(decoded(PAIR, next.latin1Slice())).toEqual({ number: 1, bytes: 'abc' })
  })
})
