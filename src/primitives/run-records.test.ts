import { expect, test } from 'vitest'
import { encodeFields, encodeRecord, joinSorted, type Value } from '../core/value.ts'
import { recordBytes, recordIn, runOf } from './run-records.ts'

function bytesOf(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text))
}

const HOSTILE: readonly Value[] = [
  {},
  null,
  '',
  'text',
  ',"runId":"other"',
  ',"parentRun":"other',
  ',"metadata":{}',
  [',"metadata":', ',"runId":"', '\\', '"'],
  { a: 1, parentRun: 'x' },
  { runId: 'x', metadata: { runId: 'y', parentRun: 'z' } },
  { z: { z: [{ parentRun: 'x', runId: 'y', status: 'Active' }] } },
  { '': '\0', '"': '\\"' },
  -0,
  10n,
  bytesOf(',"runId":"other"'),
  [Uint8Array.of(0, 34), { b: bytesOf(',"metadata":'), a: bytesOf('"') }],
]
const TEXTS = ['plain', '"', '\\', ',"metadata":', ',"runId":"x', '\u0000', 'ü', ',"parentRun":"']

test('the metadata of a record are found without parsing, whatever text is around and inside them', async () => {
  for (const metadata of HOSTILE) {
    for (const text of TEXTS) {
      for (const more of [
        {},
        { parentRun: text },
        { error: text },
        { app: text, agent: text, parentRun: text },
      ]) {
        const head = {
          runId: text,
          status: 'Active',
          createdAt: 1,
          updatedAt: 2,
          tags: [text, 'b'],
          ...more,
        } as const
        const value = joinSorted(encodeFields({ ...head, metadata }))
        const record = recordIn({ value })
        expect(record.head).toEqual(head)
        expect(recordBytes(record)).toBe(value)
        expect(await runOf({ value })).toEqual({ ...head, metadata })
      }
    }
  }
})

test('bytes that are not the record of a run are CORRUPT', () => {
  for (const value of [
    '',
    '{}',
    'null',
    '{"a":1,"metadata":{}}',
    encodeRecord({ runId: 'a', metadata: {} }),
  ]) {
    expect(() => recordIn({ value }), value).toThrow(expect.objectContaining({ code: 'CORRUPT' }))
  }
})
