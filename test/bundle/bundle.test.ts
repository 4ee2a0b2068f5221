import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Annals, type BundleReport, open, verifyBundle } from '../../src/index.ts'
import { rounds } from '../rounds.ts'
import { addRun, bytesOf, chunked } from './bundles.ts'

let db: Annals
beforeEach(async () => {
  db = await open({ memory: true })
})
afterEach(() => db.close())

/** Changes of a byte to another value, to a letter in the other case, and to a byte that is not ASCII. */
const CHANGES = [0x01, 0x20, 0x80]

const verify = (bytes: Uint8Array): Promise<BundleReport> => verifyBundle(chunked(bytes))

describe('a bundle', () => {
  test('is lines of canonical JSON that verify without a database, however they are split into chunks', async () => {
    await addRun(db, 'run-1')
    const bytes = await bytesOf(db.exportRun('run-1'))
    const lines = bytes.toString().trimEnd().split('\n')
    expect(lines.map(line => Object.keys(JSON.parse(line))[0])).toEqual([
      'annals-bundle',
      ...['event', 'event'],
      ...Array.from({ length: 6 }, () => 'hash'),
      'snapshot',
      'end',
    ])
    const snapshot = await db.ledger.projectSnapshot('run-1')
    for (const size of [1, 7, bytes.length]) {
      const report = await verifyBundle(chunked(bytes, size))
      expect(report).toMatchObject({
        isValid: true,
        runId: 'run-1',
        tenant: 'default',
        records: 6,
        events: 2,
      })
      expect(report.snapshot).toEqual(snapshot)
    }
    // A second export gives the same bytes.
    expect(await bytesOf(db.exportRun('run-1'))).toEqual(bytes)
  })

  test('has only the parts that a run has, and an unknown run has no bundle', async () => {
    await db.events.append('unlisted', 'note', 1)
    expect(await verifyBundle(db.exportRun('unlisted'))).toMatchObject({
      isValid: true,
      records: 0,
      events: 1,
    })
    await db.runs.create({ runId: 'empty' })
    expect(await verifyBundle(db.exportRun('empty'))).toMatchObject({ isValid: true, records: 0, events: 0 })
    await expect(bytesOf(db.exportRun('nobody'))).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' })
  })

  test('given as a path instead of a stream is refused with advice', async () => {
    const path = 'run.bundle' as unknown as AsyncIterable<string>
    await expect(verifyBundle(path)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining('createReadStream(path)'),
    })
  })

  test('with any byte changed fails, and the error names the line', async () => {
    await addRun(db, 'run-1')
    const bytes = await bytesOf(db.exportRun('run-1'))
    let line = 1
    const wrong: string[] = []
    for (let at = 0; at < bytes.length; at++) {
      // Each byte gets one of the changes, or all of them.
      for (let round = 0; round < rounds(1, CHANGES.length); round++) {
        const change = CHANGES[(at + round) % CHANGES.length]
        const changed = Buffer.from(bytes)
        changed[at] ^= change
        const report = await verifyBundle(chunked(changed, changed.length))
        if (report.isValid || report.line !== line)
          wrong.push(`byte ${at} ^ ${change} in line ${line}: ${JSON.stringify(report)}`)
      }
      if (bytes[at] === 0x0a) line++
    }
    expect(wrong).toEqual([])
    expect(line).toBe(12)
  }, 120_000)

  test('that was cut off anywhere fails, and so does one with data after its end', async () => {
    await addRun(db, 'run-1')
    const bytes = await bytesOf(db.exportRun('run-1'))
    for (let end = 0; end < bytes.length; end++) {
      const line = bytes.subarray(0, end).toString('latin1').split('\n').length
      expect(await verify(bytes.subarray(0, end)), `cut at ${end}`).toMatchObject({ isValid: false, line })
    }
    for (const more of ['\n', '{}\n', ' ']) {
      expect(await verify(Buffer.concat([bytes, Buffer.from(more)]))).toMatchObject({
        isValid: false,
        line: 12,
      })
    }
  }, 60_000)

  test('with lines that are missing, doubled, swapped or of another run fails', async () => {
    await addRun(db, 'run-1')
    await addRun(db, 'run-2')
    const lines = (await bytesOf(db.exportRun('run-1'))).toString().trimEnd().split('\n')
    const others = (await bytesOf(db.exportRun('run-2'))).toString().trimEnd().split('\n')
    const joined = (list: readonly string[]): Buffer => Buffer.from(`${list.join('\n')}\n`)
    for (let n = 0; n < lines.length; n++) {
      const without = lines.filter((_, i) => i !== n)
      expect(await verify(joined(without)), `without ${n + 1}`).toMatchObject({ isValid: false, line: n + 1 })
      const doubled = lines.toSpliced(n, 0, lines[n])
      expect(await verify(joined(doubled)), `doubled ${n + 1}`).toMatchObject({ isValid: false, line: n + 2 })
      const replaced = lines.toSpliced(n, 1, others[n])
      // The header of another run is valid on its own, so the second line is the first invalid one.
      expect(await verify(joined(replaced)), `replaced ${n + 1}`).toMatchObject({
        isValid: false,
        line: n === 0 ? 2 : n + 1,
      })
    }
  })

  test('that is not a bundle, or has a later version, is refused with that reason', async () => {
    expect(await verify(Buffer.from(''))).toEqual({ isValid: false, line: 1, error: 'the bundle is empty' })
    for (const text of [
      'hello\n',
      '[]\n',
      '{}\n',
      'null\n',
      `${'['.repeat(100_000)}\n`,
      '{"annals-bundle":1}\n',
    ]) {
      expect(await verify(Buffer.from(text))).toMatchObject({ isValid: false, line: 1 })
    }
    const later = await verify(Buffer.from('{"annals-bundle":2}\n'))
    expect(later.error).toContain('has version 2, but this program reads only 1')
  })

  test('with another run id fails, and is not imported', async () => {
    await addRun(db, 'run-1')
    const other = await open({ memory: true })
    // The run id is part of the hashes, so a bundle with another run id is invalid.
    const bytes = await bytesOf(db.exportRun('run-1'))
    const renamed = Buffer.from(bytes.toString().replaceAll('"run-1"', '"run-9"'))
    expect(await verify(renamed)).toMatchObject({ isValid: false, line: 1 })
    await expect(other.importRun(() => chunked(renamed))).rejects.toMatchObject({ code: 'CORRUPT' })
    expect(await other.runs.list()).toEqual([])
    await other.close()
  })
})
