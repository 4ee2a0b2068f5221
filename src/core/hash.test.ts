import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { fromBuffer, fromUtf8, toBuffer, utf8 } from './bytes.ts'
import { AnnalsError } from './errors.ts'
import { bodyHash, HASH_BYTES, linkHash, sha256, sha256Hex, ZERO_HASH } from './hash.ts'

const hex = (bytes: string): string => toBuffer(bytes).toString('hex')
const fromHex = (text: string): string => fromBuffer(Buffer.from(text, 'hex'))

/** The hashes as the contract describes them, written without any code of the project. */
const number64 = (value: number): Buffer => {
  const buffer = Buffer.alloc(8)
  buffer.writeBigUInt64BE(BigInt(value))
  return buffer
}
const bodyByHand = (parts: readonly string[], type: string, payload: Buffer): string => {
  const hash = createHash('sha256').update('annals:body:1').update(Buffer.of(0))
  for (const item of [...parts.map(part => Buffer.from(part)), Buffer.from(type), payload]) {
    hash.update(number64(item.length)).update(item)
  }
  return hash.digest('hex')
}
const linkByHand = (prevHash: Buffer, sequence: number, time: number, body: Buffer): string =>
  createHash('sha256')
    .update('annals:link:1')
    .update(Buffer.of(0))
    .update(prevHash)
    .update(number64(sequence))
    .update(number64(time))
    .update(body)
    .digest('hex')

const BODIES = [
  {
    parts: ['default', 'default', 'default', 'run-1'],
    type: 'started',
    payload: '{"attempt":1}',
    hash: 'd2b9cf4f9a06be2ad5f534dcaa2cb8ac127ba2fbb9fe7515fe05141645729407',
  },
  {
    parts: ['acme', 'shop', 'agent-é', 'run-1'],
    type: 'tool.call',
    payload: 'null',
    hash: '699c784b9ce3ba9bd82806bef5482d2abe09920dbe0be368b03664e37e0a2cd2',
  },
  {
    parts: ['', '', '', ''],
    type: '',
    payload: '',
    hash: 'b24fa5aecae217711c36c0b3f1de31e572c8f60d2c4694516c535f11567a3ac0',
  },
] as const

const LINKS = [
  {
    sequence: 0,
    time: 1_700_000_000_000,
    hash: 'd820a54cd9a86b65561a0a74f4f3860385256e759ae0e621c54d7bcec4120e66',
  },
  {
    sequence: 1,
    time: 1_700_000_000_001,
    hash: '6bf58575a0608c55feb0665cc0db48e1832ca10e730aae37c52086ec6f167eda',
  },
  {
    sequence: Number.MAX_SAFE_INTEGER,
    time: Number.MAX_SAFE_INTEGER,
    hash: '6adcc9b28d0d6d5f0b7c390be8fced835285c0b63292f53cfd2ae53f70277064',
  },
] as const

describe('the vectors of docs/hash-chain.md', () => {
  test('match the code and an independent computation', () => {
    let prevHash = ZERO_HASH
    BODIES.forEach((body, i) => {
      expect(hex(bodyHash(body.parts, body.type, body.payload))).toBe(body.hash)
      expect(bodyByHand(body.parts, body.type, Buffer.from(body.payload))).toBe(body.hash)
      const link = LINKS[i]
      const hash = linkHash(prevHash, link.sequence, link.time, fromHex(body.hash))
      expect(hex(hash)).toBe(link.hash)
      expect(linkByHand(toBuffer(prevHash), link.sequence, link.time, Buffer.from(body.hash, 'hex'))).toBe(
        link.hash,
      )
      prevHash = hash
    })
  })

  test('are complete in the document', () => {
    const page = readFileSync(new URL('../../docs/hash-chain.md', import.meta.url), 'utf8')
    for (const { hash } of [...BODIES, ...LINKS]) expect(page).toContain(hash)
  })

  test('the bytes in the document have these hashes', () => {
    const page = readFileSync(new URL('../../docs/hash-chain.md', import.meta.url), 'utf8')
    const blocks = [...page.matchAll(/```\n([^`]*)```/g)].map(match => match[1])
    const bytes = blocks.map(block =>
      block
        .split('\n')
        .flatMap(line => line.match(/^(?:[0-9a-f]{2,} ?)+(?= )/)?.[0] ?? [])
        .join('')
        .replaceAll(' ', ''),
    )
    expect(bytes.map(text => createHash('sha256').update(Buffer.from(text, 'hex')).digest('hex'))).toEqual([
      BODIES[0].hash,
      LINKS[0].hash,
    ])
  })
})

describe('hashes', () => {
  test('SHA-256 of texts and of bytes matches known digests', () => {
    const abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
    expect(sha256Hex('abc')).toBe(abc)
    expect(sha256Hex(Buffer.from('abc'))).toBe(abc)
    expect(hex(sha256('abc'))).toBe(abc)
    expect(sha256('\xff')).toBe(fromHex(sha256Hex(Uint8Array.of(255))))
    expect(ZERO_HASH).toHaveLength(HASH_BYTES)
  })

  test('the hash of any body matches an independent computation, also beyond the scratch buffer', () => {
    const text = fc.string({ unit: 'grapheme', maxLength: 30 })
    const payload = fc.oneof(
      text,
      text.map(part => part.repeat(3000)),
      fc.constantFrom('x'.repeat(16_000), 'x'.repeat(17_000)),
    )
    fc.assert(
      fc.property(fc.array(text, { maxLength: 5 }), text, payload, (parts, type, content) => {
        expect(hex(bodyHash(parts, type, utf8(content)))).toBe(bodyByHand(parts, type, Buffer.from(content)))
      }),
      { numRuns: 500 },
    )
  })

  test('the hash of any link matches an independent computation', () => {
    const hash = fc.uint8Array({ minLength: 32, maxLength: 32 })
    fc.assert(
      fc.property(hash, fc.maxSafeNat(), fc.maxSafeNat(), hash, (prevHash, sequence, time, body) => {
        expect(hex(linkHash(fromBuffer(prevHash), sequence, time, fromBuffer(body)))).toBe(
          linkByHand(Buffer.from(prevHash), sequence, time, Buffer.from(body)),
        )
      }),
      { numRuns: 1000 },
    )
  })

  test('the boundaries between parts change the hash', () => {
    const all = [
      bodyHash(['a', 'b'], 'c', 'd'),
      bodyHash(['ab', ''], 'c', 'd'),
      bodyHash(['a'], 'bc', 'd'),
      bodyHash(['a', 'b'], '', 'cd'),
      bodyHash(['a', 'b', 'c'], '', 'd'),
    ]
    expect(new Set(all).size).toBe(all.length)
  })

  test.each([
    ['a short hash', () => linkHash('', 0, 0, ZERO_HASH)],
    ['a negative sequence', () => linkHash(ZERO_HASH, -1, 0, ZERO_HASH)],
    ['a time with a fraction', () => linkHash(ZERO_HASH, 0, 0.5, ZERO_HASH)],
    ['a number that is no longer exact', () => linkHash(ZERO_HASH, 2 ** 53, 0, ZERO_HASH)],
  ])('%s breaks an invariant', (_, action) => {
    expect(action).toThrow(AnnalsError)
  })
})

describe('byte strings', () => {
  test('a text converted to UTF-8 and back is the same', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), text => {
        expect(toBuffer(utf8(text)).equals(Buffer.from(text))).toBe(true)
        expect(fromUtf8(utf8(text))).toBe(text)
      }),
    )
  })
})
