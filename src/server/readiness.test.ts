import { mkdtempSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'

import { SimulatedDisk } from '../../test/simulation/simulated-disk.ts'
import { type Annals, open, openOn } from '../annals.ts'
import { openEmbedded } from '../embedded/open.ts'

import { createServer, type Server } from './server.ts'

/** `/ready` is 200 only while writes can succeed. */

let db: Annals
let disk: SimulatedDisk
let server: Server

async function serve(readOnly = false): Promise<void> {
  const storage = await openEmbedded({
    disk: disk.handle(),
    readOnly,
    prepareBytes: 0,
    warn: () => undefined,
  })
  db = await openOn(storage)
  server = createServer(db, { log: () => undefined })
}

beforeEach(async () => {
  disk = new SimulatedDisk()
  await serve()
  await db.kv.put('run', 'before', 1)
})
afterEach(async () => {
  disk.heal()
  disk.capacityBytes = Number.POSITIVE_INFINITY
  await db.close()
})

async function ready(): Promise<string> {
  const answer = await server.fetch(new Request('http://localhost/ready'))
  return `${answer.status} ${((await answer.json()) as { status: string }).status}`
}

const used = (): number => disk.files().reduce((sum, { size }) => sum + size, 0)

describe('/ready', () => {
  test('is 200 while writes succeed, without writing', async () => {
    const { version } = db.stats()
    expect(await ready()).toBe('200 ready')
    expect(db.stats()).toMatchObject({ version, writable: true })
  })

  test('is 503 permanently after a failed sync', async () => {
    disk.fail({ error: 'EIO', when: ({ kind }) => kind === 'sync' || kind === 'syncLater' })
    await expect(db.kv.put('run', 'k', 1)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    expect(await ready()).toBe('503 unavailable')
    expect(await ready()).toBe('503 unavailable')
    expect(db.stats()).toMatchObject({ writable: false, writeProblem: { code: 'OUTCOME_UNKNOWN' } })
  })

  test('is 503 while the disk is full, even before a write fails, and 200 when there is room', async () => {
    disk.capacityBytes = used()
    expect(await ready()).toBe('503 unavailable')
    await expect(db.kv.put('run', 'k', 'x'.repeat(5_000))).rejects.toMatchObject({ code: 'DISK_FULL' })
    expect(await ready()).toBe('503 unavailable')
    expect(db.stats()).toMatchObject({ writable: false, writeProblem: { code: 'DISK_FULL' } })
    disk.capacityBytes = Number.POSITIVE_INFINITY
    expect(await ready()).toBe('200 ready')
    expect(db.stats().writable).toBe(true)
    await db.kv.put('run', 'k', 'x'.repeat(5_000))
    const left = disk.afterProcessCrash()
    await db.close()
    disk = left
    await serve()
    expect(await db.kv.get('run', 'k'), 'and what it tried hurt nobody').toBe('x'.repeat(5_000))
  })

  test('is 503 while the disk is too full for the checkpoint that opening asks for', async () => {
    const killed = disk.afterProcessCrash()
    await db.close()
    disk = killed
    await serve()
    disk.capacityBytes = used()
    expect(await ready()).toBe('503 unavailable')
    expect(db.stats()).toMatchObject({ writable: false, writeProblem: { code: 'DISK_FULL' } })
    disk.capacityBytes = Number.POSITIVE_INFINITY
    expect(await ready()).toBe('200 ready')
    await db.kv.put('run', 'after', 1)
  })

  test('is 503 while there is no file descriptor to open a needed file, and 200 again afterwards', async () => {
    await db.close()
    await serve()
    disk.fail({
      error: 'EMFILE',
      when: ({ kind }) => kind === 'open' || kind === 'create',
      times: Number.POSITIVE_INFINITY,
    })
    expect(await ready()).toBe('503 unavailable')
    await expect(db.kv.put('run', 'k', 1)).rejects.toMatchObject({ code: 'IO_ERROR' })
    expect(await ready()).toBe('503 unavailable')
    disk.heal()
    expect(await ready()).toBe('200 ready')
    await db.kv.put('run', 'k', 1)
  })

  test('is 503 with read-only for a store that was opened read-only', async () => {
    await db.close()
    await serve(true)
    expect(await ready()).toBe('503 read-only')
    expect(db.stats()).toMatchObject({ writable: false, writeProblem: { code: 'READ_ONLY' } })
  })

  test('is 503 after the folder was moved away, even before a write fails', async () => {
    const root = mkdtempSync(join(tmpdir(), 'annals-ready-'))
    const real = await open({ path: join(root, 'data') })
    const other = createServer(real, { log: () => undefined })
    const status = async (): Promise<number> =>
      (await other.fetch(new Request('http://localhost/ready'))).status
    await real.kv.put('run', 'k', 1)
    expect(await status()).toBe(200)
    renameSync(join(root, 'data'), join(root, 'moved'))
    expect(await status()).toBe(503)
    expect(real.stats()).toMatchObject({ writable: false, writeProblem: { code: 'IO_ERROR' } })
    await expect(real.close()).rejects.toMatchObject({ code: 'IO_ERROR' })
    rmSync(root, { recursive: true, force: true })
  })
})
