import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { open } from '../../src/annals.ts'
import { createServer } from '../../src/server/server.ts'
import { streamedJson } from '../../src/server/telemetry-stream.ts'
import type { NewRun } from '../../src/telemetry/run-record.ts'
import { heldBytes } from './held-memory.ts'
import { newRun } from './telemetry-suite/service.ts'

/** Lists of large records are sent while they are read from the store, as fast as the client reads them. */

const RECORDS = 120
const RECORD_BYTES = 1_000_000
const LOOK_EVERY_BYTES = 20 * RECORD_BYTES
/** A small cache, so that mostly the response is measured. */
const CACHE_BYTES = 4 * RECORD_BYTES
/** This includes the reader, which is in the same process, and the buffers of its sockets. */
const HELD_BYTES_MAX = 48 * RECORD_BYTES

test('a list is read only as far as its client reads, and ends with it', async () => {
  let taken = 0
  let isOver = false
  async function* items(): AsyncGenerator<string, void, void> {
    try {
      for (; taken < 1_000; taken++) yield 'x'.repeat(100_000)
    } finally {
      isOver = true
    }
  }
  const response = await streamedJson('', items(), '')
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  await reader.read()
  expect(taken).toBeLessThan(5)
  await reader.cancel()
  expect(isOver).toBe(true)
})

test.each([
  ['[]', [], '', ''],
  ['{"run":1,"children":["a","b"]}', ['a', 'b'], '{"run":1,"children":', '}'],
])('a list that is streamed is %s', async (expected, given, before, after) => {
  async function* items(): AsyncGenerator<string, void, void> {
    yield* given
  }
  expect(await (await streamedJson(before, items(), after)).text()).toBe(expected)
})

test('an error before the first item is an error response', async () => {
  // biome-ignore lint/correctness/useYield: it throws before it could yield
  async function* items(): AsyncGenerator<string, void, void> {
    throw new Error('closed')
  }
  await expect(streamedJson('', items(), '')).rejects.toThrow('closed')
})

test('lists and trails of large records keep only a few in memory', async () => {
  const path = mkdtempSync(join(tmpdir(), 'annals-telemetry-large-'))
  const db = await open({ path, durability: 'relaxed', cacheBytes: CACHE_BYTES })
  for (let i = 0; i < RECORDS; i++) {
    const fields = { run_id: `c-${i}`, parent_run_id: 'P', error_details: `${i}`.padEnd(RECORD_BYTES, 'x') }
    await db.telemetry.insert([newRun({ ...fields, status: 'running' }) as unknown as NewRun])
  }
  await db.telemetry.insert([newRun({ run_id: 'P', status: 'running' }) as unknown as NewRun])
  await db.checkpoint()
  const server = createServer(db, { port: 0 })
  const { url } = await server.listen()
  // No index covers the filters of the second request, so every record is read.
  for (const asked of [
    '/api/v1/runs?limit=1000',
    '/api/v1/runs?limit=1000&job_type=job&status=running',
    '/telemetry/P',
  ]) {
    const before = heldBytes()
    let most = before
    let bytes = 0
    let nextLook = 0
    const response = await fetch(`${url}${asked}`)
    expect(response.status).toBe(200)
    for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) {
      bytes += piece.length
      if (bytes < nextLook) continue
      nextLook += LOOK_EVERY_BYTES
      most = Math.max(most, heldBytes())
    }
    expect(bytes).toBeGreaterThan(RECORDS * RECORD_BYTES)
    console.log(`${asked}: ${((most - before) / 1e6).toFixed(1)} MB are held at the most`)
    expect(most - before, asked).toBeLessThan(HELD_BYTES_MAX)
  }
  await server.close()
  await db.close()
  rmSync(path, { recursive: true })
}, 120_000)
