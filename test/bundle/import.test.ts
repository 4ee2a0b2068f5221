import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Annals } from '../../src/annals.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { Database } from '../../src/engine/database.ts'
import { deriveIdempotencyKey, namespace, open } from '../../src/index.ts'
import { addRecords, addRun, auditedIds, bytesOf, chunked } from './bundles.ts'

let db: Annals
let other: Annals
beforeEach(async () => {
  db = await open({ memory: true })
  other = await open({ memory: true })
})
afterEach(async () => {
  await db.close()
  await other.close()
})

describe('an imported run', () => {
  test('has every record, hash, time and its index entry, and exports to the same bundle', async () => {
    await addRun(db, 'run-1')
    const bytes = await bytesOf(db.exportRun('run-1'))
    expect(await other.importRun(() => chunked(bytes))).toEqual({ runId: 'run-1', records: 6, events: 2 })
    expect(await bytesOf(other.exportRun('run-1'))).toEqual(bytes)
    expect(await other.ledger.fetchEvents('run-1')).toEqual(await db.ledger.fetchEvents('run-1'))
    expect(await other.events.readRange('run-1', 0, 9)).toEqual(await db.events.readRange('run-1', 0, 9))
    expect(await other.runs.get('run-1')).toEqual(await db.runs.get('run-1'))
    expect(await other.ledger.getSnapshot('run-1')).toEqual(await db.ledger.getSnapshot('run-1'))
    expect(await other.ledger.verifyRun('run-1')).toEqual({ isValid: true, events: 6 })
    expect(await other.events.verifyChain('run-1')).toEqual({ isValid: true, length: 2 })
    expect(await other.verifyIndices()).toEqual({ ok: true, problems: [] })
    // An event that was a duplicate in the first store is one here too.
    const [first] = await db.ledger.fetchEvents('run-1', { limit: 1 })
    const { runSeq: _, persistedAt, ...event } = first
    expect(await other.ledger.appendEvent(event)).toMatchObject({ idempotent: true, runSeq: 1, persistedAt })
  })

  test('P27: keeps its namespace, and is copied and audited from there', async () => {
    const run = namespace({ tenant: 'default', app: 'a:b', agent: '%', run: 'run-1' })
    await addRun(db, run)
    const bytes = await bytesOf(db.exportRun('run-1'))
    // Every bundle begins like this, so that its format can be recognized.
    expect(Buffer.from(bytes).toString('latin1').startsWith('{"annals-bundle":1,')).toBe(true)
    expect(await other.importRun(() => chunked(bytes))).toEqual({ runId: 'run-1', records: 6, events: 2 })
    expect(await bytesOf(other.exportRun(run))).toEqual(bytes)
    expect(await other.runs.get(run)).toEqual(await db.runs.get('run-1'))
    expect(await other.ledger.fetchEvents('run-1')).toEqual(await db.ledger.fetchEvents(run))
    expect(await other.ledger.getSnapshot('run-1')).toEqual(await db.ledger.getSnapshot(run))
    expect(await other.ledger.verifyRun('run-1')).toEqual({ isValid: true, events: 6 })
    expect(await other.events.readRange('run-1', 0, 9)).toEqual([])
    expect(await auditedIds(other)).toEqual(Array.from({ length: 6 }, (_, i) => `run-1/${i + 1}`))
    expect(await other.importRun(() => chunked(bytes))).toEqual({ runId: 'run-1', records: 0, events: 0 })
    await using copy = await open({ memory: true })
    await other.copyTo(copy)
    expect(await bytesOf(copy.exportRun('run-1'))).toEqual(bytes)
    expect(await auditedIds(copy)).toEqual(await auditedIds(other))
    expect(await copy.ledger.verifyRun(run)).toEqual({ isValid: true, events: 6 })
    await other.runs.delete('run-1', { purgeLedger: true, reason: 'again' })
    await other.ledger.acquireLease('run-1', { owner: 'early', ttlMs: 60_000 })
    await expect(other.importRun(() => chunked(bytes))).rejects.toMatchObject({ code: 'WRITER_FENCED' })
  })

  test('changes nothing the second time, and continues where a shorter one ended', async () => {
    await addRun(db, 'run-1')
    const short = await bytesOf(db.exportRun('run-1'))
    await db.events.append('run-1', 'note', 'more')
    const [event] = await db.ledger.fetchEvents('run-1', { limit: 1 })
    const { runSeq: _, persistedAt: __, ...write } = event
    const unknown = { ...write, eventType: 'Noted', eventId: '1d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a' }
    await db.ledger.appendEvent({ ...unknown, idempotencyKey: deriveIdempotencyKey(unknown) })
    const long = await bytesOf(db.exportRun('run-1'))
    await other.importRun(() => chunked(short))
    const before = other.stats().version
    expect(await other.importRun(() => chunked(short))).toEqual({ runId: 'run-1', records: 0, events: 0 })
    expect(other.stats().version).toBe(before)
    expect(await other.importRun(() => chunked(long))).toEqual({ runId: 'run-1', records: 1, events: 1 })
    expect(await bytesOf(other.exportRun('run-1'))).toEqual(long)
    // The store has more records than the bundle, so nothing is imported.
    expect(await other.importRun(() => chunked(short))).toEqual({ runId: 'run-1', records: 0, events: 0 })
    expect(await auditedIds(other)).toEqual(Array.from({ length: 7 }, (_, i) => `run-1/${i + 1}`))
  })

  test("is refused in a reserved tenant, so that a bundle can't bring a token", async () => {
    const own = db.forTenant('_annals')
    await own.events.append('tokens', 'token_created', 'mine')
    const bundle = await bytesOf(own.exportRun('tokens'))
    const target = other.forTenant('_annals')
    await expect(target.importRun(() => chunked(bundle))).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'nothing can be imported into the reserved tenant "_annals"',
    })
    expect(await target.events.length('tokens')).toBe(0)
  })

  test('never replaces another run with its id', async () => {
    await addRun(db, 'run-1')
    const bundle = await bytesOf(db.exportRun('run-1'))
    await addRun(other, 'run-1')
    const before = await bytesOf(other.exportRun('run-1'))
    await expect(other.importRun(() => chunked(bundle))).rejects.toMatchObject({ code: 'RUN_EXISTS' })
    expect(await bytesOf(other.exportRun('run-1'))).toEqual(before)
    const third = await open({ memory: true })
    await third.runs.create({ runId: 'run-1', tags: ['mine'] })
    await expect(third.importRun(() => chunked(bundle))).rejects.toMatchObject({ code: 'RUN_EXISTS' })
    expect(await third.ledger.fetchEvents('run-1')).toEqual([])
    await third.close()
  })

  test('is not written at all if its bundle does not verify', async () => {
    await addRun(db, 'run-1', 40)
    const bundle = await bytesOf(db.exportRun('run-1'))
    const changed = Buffer.from(bundle)
    changed[changed.length - 10] ^= 1
    const before = other.stats().version
    await expect(other.importRun(() => chunked(changed))).rejects.toMatchObject({ code: 'CORRUPT' })
    expect(other.stats().version).toBe(before)
  })

  test('belongs to its tenant only', async () => {
    const acme = db.forTenant('acme')
    await addRun(acme, 'run-1')
    const bundle = await bytesOf(acme.exportRun('run-1'))
    await expect(other.importRun(() => chunked(bundle))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await other.forTenant('acme').importRun(() => chunked(bundle))
    expect(await bytesOf(other.forTenant('acme').exportRun('run-1'))).toEqual(bundle)
    expect(await other.runs.list()).toEqual([])
  })

  test('that is cut off is a prefix of the run, and the next import continues it', async () => {
    await addRun(db, 'run-1', 300)
    const bundle = await bytesOf(db.exportRun('run-1'))
    let readings = 0
    const failing = async function* (): AsyncGenerator<Uint8Array, void, void> {
      const isSecond = ++readings === 2
      let read = 0
      for await (const chunk of chunked(bundle, 10_000)) {
        read += chunk.length
        if (isSecond && read > bundle.length * 0.95) throw new Error('the disk is gone')
        yield chunk
      }
    }
    await expect(other.importRun(failing)).rejects.toThrow('the disk is gone')
    const begun = (await other.ledger.fetchEvents('run-1', { limit: 10_000 })).length
    expect(begun).toBeGreaterThan(900)
    expect(begun).toBeLessThan(1_202)
    const { records } = await other.importRun(() => chunked(bundle))
    expect(records).toBe(1_202 - begun)
    expect(await bytesOf(other.exportRun('run-1'))).toEqual(bundle)
    expect(await other.ledger.verifyRun('run-1')).toEqual({ isValid: true, events: 1_202 })
    expect(await auditedIds(other)).toHaveLength(1_202)
  })

  test('is refused while a writer holds the lease of the run', async () => {
    await addRun(db, 'run-1')
    const bundle = await bytesOf(db.exportRun('run-1'))
    await other.ledger.acquireLease('run-1', { owner: 'worker', ttlMs: 60_000 })
    await expect(other.importRun(() => chunked(bundle))).rejects.toMatchObject({ code: 'WRITER_FENCED' })
  })
})

describe('records that came from another store', () => {
  test('are in an audit at the times they were persisted there, among those of this store', async () => {
    await addRecords(other, 'own-1', 2)
    await addRun(db, 'run-1', 3)
    await addRecords(other, 'own-2', 2)
    await other.importRun(() => db.exportRun('run-1'))
    await addRecords(other, 'own-3', 1)
    const all: { readonly persistedAt: string; readonly runId: string }[] = []
    for await (const record of other.ledger.audit({ from: 0, to: Number.MAX_SAFE_INTEGER })) all.push(record)
    expect(all.map(({ runId }) => runId)).toEqual(
      [...all]
        .sort((a, b) =>
          a.persistedAt < b.persistedAt ? -1 : a.persistedAt > b.persistedAt ? 1 : a.runId < b.runId ? -1 : 1,
        )
        .map(({ runId }) => runId),
    )
    expect(all.filter(({ runId }) => runId === 'run-1')).toEqual(await db.ledger.fetchEvents('run-1'))
    // A time window that begins and ends within the imported run.
    const imported = await db.ledger.fetchEvents('run-1')
    const [from, to] = [imported[3].persistedAt, imported[9].persistedAt]
    const within: string[] = []
    for await (const { runId, runSeq } of other.ledger.audit({ from, to, runId: 'run-1' }))
      within.push(`${runId}/${runSeq}`)
    expect(within).toEqual(
      imported
        .filter(({ persistedAt }) => persistedAt >= from && persistedAt < to)
        .map(({ runSeq }) => `run-1/${runSeq}`),
    )
    expect(within.length).toBeGreaterThan(0)
    // Page by page.
    const paged: string[] = []
    for (let after: (typeof imported)[number] | undefined; ; ) {
      const query = { from: 0, to: Number.MAX_SAFE_INTEGER, ...(after === undefined ? {} : { after }) }
      const { value } = await other.ledger.audit(query).next()
      if (value === undefined) break
      paged.push(`${value.runId}/${value.runSeq}`)
      after = value
    }
    expect(paged).toEqual(await auditedIds(other))
  })

  test('are copied by copyTo, with the records appended after them', async () => {
    await addRun(db, 'run-1')
    await other.importRun(() => db.exportRun('run-1'))
    const [event] = await db.ledger.fetchEvents('run-1', { limit: 1 })
    const { runSeq: _, persistedAt: __, ...write } = event
    const noted = { ...write, eventType: 'Noted', eventId: '1d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a' }
    await other.ledger.appendEvent({ ...noted, idempotencyKey: deriveIdempotencyKey(noted) })
    await addRecords(other, 'own', 1)
    const third = await open({ memory: true })
    await other.copyTo(third)
    expect(await bytesOf(third.exportRun('run-1'))).toEqual(await bytesOf(other.exportRun('run-1')))
    expect(await third.ledger.verifyRun('run-1')).toEqual({ isValid: true, events: 7 })
    expect(await auditedIds(third)).toEqual(await auditedIds(other))
    await third.close()
  })

  test('are removed with their run, and not mistaken for those of a later run', async () => {
    await addRun(db, 'run-1')
    await other.importRun(() => db.exportRun('run-1'))
    await other.runs.delete('run-1', { purgeLedger: true, reason: 'asked to' })
    expect(await auditedIds(other)).toEqual([])
    await addRecords(other, 'run-1', 1)
    expect(await auditedIds(other)).toEqual(Array.from({ length: 6 }, (_, i) => `run-1/${i + 1}`))
  })

  test('LD12: are found after a purge, also from a bundle that is shorter than the purged run', async () => {
    await addRecords(db, 'run-1', 1)
    const short = await bytesOf(db.exportRun('run-1'))
    await other.importRun(() => chunked(short))
    await addRecords(other, 'own', 1)
    const { runSeq: _, persistedAt: __, ...write } = (await db.ledger.fetchEvents('run-1', { limit: 1 }))[0]
    const noted = { ...write, eventType: 'Noted', eventId: '1d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a' }
    await other.ledger.appendEvent({ ...noted, idempotencyKey: deriveIdempotencyKey(noted) })
    await other.ledger.projectSnapshot('run-1')
    await other.runs.delete('run-1', { purgeLedger: true, reason: 'asked to' })
    expect(await other.importRun(() => chunked(short))).toMatchObject({ records: 6 })
    expect(await other.ledger.getSnapshot('run-1')).toEqual(await db.ledger.getSnapshot('run-1'))
  })

  test('LD17: are audited once, whether imported in parts or again after a purge', async () => {
    const third = await open({ memory: true })
    const append = async (to: Annals, eventType: string): Promise<void> => {
      const [{ runSeq: _, persistedAt: __, ...first }] = await to.ledger.fetchEvents('run-1', { limit: 1 })
      const event = { ...first, eventType, eventId: randomUUID() }
      await to.ledger.appendEvent({ ...event, idempotencyKey: deriveIdempotencyKey(event) })
    }
    await addRecords(db, 'run-1', 1)
    await other.importRun(() => db.exportRun('run-1'))
    await append(other, 'Noted')
    await third.importRun(() => other.exportRun('run-1'))
    await append(third, 'Seen')
    await other.importRun(() => third.exportRun('run-1'))
    const all = Array.from({ length: 8 }, (_, i) => `run-1/${i + 1}`)
    expect(await auditedIds(other)).toEqual(all)
    await other.runs.delete('run-1', { purgeLedger: true, reason: 'asked to' })
    await other.importRun(() => third.exportRun('run-1'))
    expect(await auditedIds(other)).toEqual(all)
    await third.close()
  })

  test('LD12: are projected by a second import if the first one was interrupted', async () => {
    await addRun(db, 'run-1')
    const bytes = await bytesOf(db.exportRun('run-1'))
    const project = other.ledger.projectIfAny
    other.ledger.projectIfAny = () => Promise.reject(new Error('killed here'))
    await expect(other.importRun(() => chunked(bytes))).rejects.toThrow('killed here')
    other.ledger.projectIfAny = project
    await other.importRun(() => chunked(bytes))
    expect((await other.runs.get('run-1'))?.status).toBe('Completed')
    expect(await other.ledger.alerts({ runId: 'run-1' })).toEqual(await db.ledger.alerts({ runId: 'run-1' }))
  })

  test.each([3_600_000, 8_700_000_000_000_000])(
    'LD10: are refused if they are %i ms ahead of the clock, and nothing changes',
    async ahead => {
      const storage = await openEmbedded({ clock: () => Date.now() + ahead })
      const source = new Annals({ storage, database: new Database(storage), guards: {} }, 'default')
      await source.events.append('run-1', 'note', 'from ahead')
      const bytes = await bytesOf(source.exportRun('run-1'))
      await expect(other.importRun(() => chunked(bytes))).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
        details: { name: 'bundle' },
      })
      expect(await other.events.length('run-1')).toBe(0)
      expect((await other.runs.create({ runId: 'mine' })).createdAt).toBeLessThan(Date.now() + 1_000)
      await source.close()
    },
  )
})
