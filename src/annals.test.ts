import { randomUUID } from 'node:crypto'
import { cpSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Annals, open } from './annals.ts'
import type { ErrorCode } from './core/errors.ts'
import { agentShared, namespace } from './engine/keys.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'annals-handle-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const refusal = (code: ErrorCode, details: object = {}) =>
  expect.objectContaining({ name: 'AnnalsError', code, details: expect.objectContaining(details) })

describe('the id of a store', () => {
  test('is in stats with the folder, and in the details of LOCKED; a copy of the folder has another folder id', async () => {
    const [path, copy] = [join(folder, 'store'), join(folder, 'copy')]
    const db = await open({ path })
    const { storeId, folder: first } = db.stats()
    expect(first).toEqual({ device: expect.stringMatching(/^\d+$/), inode: expect.stringMatching(/^\d+$/) })
    for (const readOnly of [false, true])
      await expect(open({ path, readOnly })).rejects.toEqual(refusal('LOCKED', { storeId }))
    symlinkSync(path, join(folder, 'link'))
    await expect(open({ path: join(folder, 'link') })).rejects.toEqual(refusal('LOCKED', { storeId }))
    await db.close()
    cpSync(path, copy, { recursive: true })
    const copied = await open({ path: copy })
    expect(copied.stats().storeId).toBe(storeId)
    expect(copied.stats().folder).not.toEqual(first)
    await copied.close()
    const linked = await open({ path: join(folder, 'link') })
    expect(linked.stats().folder).toEqual(first)
    await linked.close()
    const memory = await open({ memory: true })
    expect(memory.stats().folder).toBeUndefined()
    await memory.close()
  })

  test('is set at creation and stays the same when the store is reopened, copied, moved or backed up', async () => {
    const path = join(folder, 'store')
    const db = await open({ path })
    const { storeId } = db.stats()
    expect(storeId).toMatch(/^[0-9a-f]{32}$/)
    await db.kv.put('r', 'k', 1)
    await db.backup(join(folder, 'backup'))
    await db.close()
    cpSync(path, join(folder, 'copy'), { recursive: true })
    renameSync(path, join(folder, 'moved'))
    for (const each of ['copy', 'moved', 'backup', 'backup']) {
      const again = await open({ path: join(folder, each) })
      expect(again.stats().storeId, each).toBe(storeId)
      expect(await again.kv.get('r', 'k')).toBe(1)
      await again.kv.put('r', 'l', 2)
      await again.close()
    }
  })

  test('differs between stores, and a store in memory has none', async () => {
    const [a, b] = await Promise.all(['a', 'b'].map(name => open({ path: join(folder, name) })))
    expect(a.stats().storeId).not.toBe(b.stats().storeId)
    const memory = await open({ memory: true })
    expect(memory.stats().storeId).toBeUndefined()
    await Promise.all([a, b, memory].map(db => db.close()))
  })
})

describe('backup', () => {
  test("into the store's own folder is refused and creates nothing there, by any path", async () => {
    const path = join(folder, 'store')
    const db = await open({ path })
    await db.kv.put('r', 'k', 1)
    symlinkSync(path, join(folder, 'link'))
    const files = readdirSync(path)
    const targets = [
      path,
      join(path, 'b'),
      join(path, 'a', 'b'),
      join(folder, 'link', 'b'),
      join(path, '..', 'store', 'b'),
    ]
    for (const target of targets) {
      await expect(db.backup(target), target).rejects.toEqual(refusal('INVALID_ARGUMENT', { name: 'folder' }))
    }
    expect(readdirSync(path)).toEqual(files)
    await expect(db.backup('')).rejects.toEqual(refusal('INVALID_ARGUMENT'))
    for (const target of [join(folder, 'store-2'), join(folder, '..store')]) {
      await db.backup(target)
      const copy = await open({ path: target })
      expect(await copy.kv.get('r', 'k')).toBe(1)
      await copy.close()
    }
    await db.close()
  })
})

describe('open', () => {
  test('creates the folder, and finds after reopening what was put', async () => {
    const path = join(folder, 'a', 'b')
    const first = await open({ path })
    await first.kv.put('run-1', 'step', 3)
    await first.close()
    const second = await open({ path })
    expect(await second.kv.get('run-1', 'step')).toBe(3)
    expect(second.recovery).toBeUndefined()
    await second.close()
  })

  test('in memory leaves nothing behind', async () => {
    const db = await open({ memory: true })
    await db.kv.put('run-1', 'step', 3)
    expect(await db.kv.get('run-1', 'step')).toBe(3)
    await db.close()
  })

  for (const [options, name] of [
    [undefined, 'options'],
    [{}, 'path'],
    [{ path: '' }, 'path'],
    [{ path: 7 }, 'path'],
    [{ path: 'x', memory: true }, 'path'],
    [{ memory: 'yes' }, 'memory'],
    [{ memory: true, durability: 'strong' }, 'durability'],
    [{ memory: true, cacheBytes: -1 }, 'cacheBytes'],
    [{ memory: true, cacheSize: 1 }, 'cacheSize'],
    [{ memory: true, tenant: '' }, 'tenant'],
  ] as const) {
    test(`${JSON.stringify(options)} is refused with the name of the wrong option`, async () => {
      const attempt = open(options as unknown as Parameters<typeof open>[0])
      await expect(attempt).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      await expect(attempt).rejects.toThrow(new RegExp(name))
    })
  }

  test('a path that is a file is refused, and the file is not changed', async () => {
    const path = join(folder, 'file')
    writeFileSync(path, 'mine')
    await expect(open({ path })).rejects.toEqual(refusal('INVALID_ARGUMENT'))
    expect(readdirSync(folder)).toEqual(['file'])
  })

  test('P19: a folder opened twice by one process is LOCKED, and free after close', async () => {
    const first = await open({ path: folder })
    await expect(open({ path: folder })).rejects.toEqual(refusal('LOCKED'))
    await first.close()
    await (await open({ path: folder })).close()
  })

  test('an invalid tenant leaves no folder locked', async () => {
    for (const tenant of ['_shared', '', 'a\0b', 'k'.repeat(257), 7]) {
      await expect(open({ path: folder, tenant: tenant as string })).rejects.toEqual(
        refusal('INVALID_ARGUMENT'),
      )
    }
    await (await open({ path: folder, tenant: 'acme' })).close()
  })

  test('a closed handle refuses every call with CLOSED, and closing twice succeeds', async () => {
    const db = await open({ path: folder })
    await db.close()
    await db.close()
    const closed = refusal('CLOSED')
    await expect(db.kv.get('r', 'k')).rejects.toEqual(closed)
    await expect(db.kv.put('r', 'k', 1)).rejects.toEqual(closed)
    await expect(db.kv.delete('r', 'k')).rejects.toEqual(closed)
    await expect(db.kv.list('r')).rejects.toEqual(closed)
    await expect(db.transaction('r', tx => tx.kv.get('k'))).rejects.toEqual(closed)
    await expect(db.checkpoint()).rejects.toEqual(closed)
    await expect(db.backup(join(folder, 'b'))).rejects.toEqual(closed)
  })
})

describe('a handle', () => {
  let db: Annals
  beforeEach(async () => {
    db = await open({ memory: true })
  })
  afterEach(() => db.close())

  test('L20, LD16: a refused lease or event id of an invalid run id leaves nothing behind', async () => {
    const { ledger } = db
    const there = namespace({ tenant: 'default', app: 'a', agent: 'b', run: 'a|b' })
    const refused = { code: 'INVALID_ARGUMENT', details: { name: 'runId', value: 'a|b' } }
    await db.runs.create({ runId: there })
    for (const run of ['a|b', there]) {
      await expect(ledger.acquireLease(run, { owner: 'w' })).rejects.toMatchObject(refused)
      await expect(ledger.registry.claim(run, '0'.repeat(64), randomUUID())).rejects.toMatchObject(refused)
    }
    await db.runs.delete(there)
    expect(await db.scopes()).toEqual([])
  })

  test('P3: runs, tenants and shared scopes never see each other', async () => {
    const acme = db.forTenant('acme')
    const scopes = [
      'run-1',
      'run-2',
      namespace({ tenant: 'default', app: 'a', agent: 'g', run: 'run-1' }),
      agentShared({ tenant: 'default', app: 'a', agent: 'g' }),
    ]
    for (const [i, scope] of scopes.entries()) await db.kv.put(scope, 'key', i)
    await acme.kv.put('run-1', 'key', 'acme')
    for (const [i, scope] of scopes.entries()) expect(await db.kv.get(scope, 'key')).toBe(i)
    expect(await acme.kv.get('run-1', 'key')).toBe('acme')
    await expect(acme.kv.get(scopes[2] as never, 'key')).rejects.toEqual(refusal('INVALID_ARGUMENT'))
  })

  test('P4: a transaction reads its own writes, and is atomic', async () => {
    await db.kv.put('run', 'a', 1)
    const failure = new Error('mine')
    const attempt = db.transaction('run', async tx => {
      await tx.kv.put('a', 2)
      await tx.kv.put('b', 2)
      expect(await tx.kv.entries()).toEqual([
        ['a', 2],
        ['b', 2],
      ])
      throw failure
    })
    await expect(attempt).rejects.toBe(failure)
    expect(await db.kv.entries('run')).toEqual([['a', 1]])
  })

  test('P12: concurrent increments in transactions are all counted', async () => {
    const increment = (): Promise<number> =>
      db.transaction('run', async tx => tx.kv.put('count', Number((await tx.kv.get('count')) ?? 0) + 1), {
        maxRetries: 1_000,
      })
    await Promise.all(Array.from({ length: 50 }, increment))
    expect(await db.kv.get('run', 'count')).toBe(50)
  })

  test('P12: of two manual transactions that read and write one key, the first to commit wins', async () => {
    const first = await db.begin('run')
    const second = await db.begin('run')
    for (const tx of [first, second]) await tx.kv.put('n', Number((await tx.kv.get('n')) ?? 0) + 1)
    await first.commit()
    await expect(second.commit()).rejects.toEqual(refusal('CONFLICT'))
    expect(await db.kv.get('run', 'n')).toBe(1)
    await expect(second.kv.get('n')).rejects.toEqual(refusal('INVALID_OPERATION'))
  })

  test('P4: a read-only transaction refuses to write', async () => {
    const attempt = db.transaction('run', tx => tx.kv.put('a', 1), { readOnly: true })
    await expect(attempt).rejects.toEqual(refusal('INVALID_OPERATION'))
  })
})
