import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { open } from '../annals.ts'
import { sha256Hex } from '../core/hash.ts'
import { isUuidV4, newId } from '../core/id.ts'
import { type EventIdRegistry, openFileRegistry } from './event-id-registry.ts'

const folder = mkdtempSync(join(tmpdir(), 'annals-registry-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
let files = 0
const newPath = (): string => join(folder, `registry-${files++}.jsonl`)

const KEY = sha256Hex('a')
const OTHER_KEY = sha256Hex('b')

interface Opened {
  readonly registry: EventIdRegistry
  reopen(): Promise<EventIdRegistry>
  close(): Promise<void>
}

const KINDS: Readonly<Record<string, () => Promise<Opened>>> = {
  async 'in a file'() {
    const path = newPath()
    let current = await openFileRegistry(path)
    return {
      registry: current,
      async reopen() {
        await current.close()
        current = await openFileRegistry(path)
        return current
      },
      close: () => current.close(),
    }
  },
  async 'in the store'() {
    const path = mkdtempSync(join(folder, 'store-'))
    let current = await open({ path })
    return {
      registry: current.ledger.registry,
      async reopen() {
        await current.close()
        current = await open({ path })
        return current.ledger.registry
      },
      close: () => current.close(),
    }
  },
}

describe.each(Object.keys(KINDS))('a registry %s', kind => {
  async function withRegistry(work: (opened: Opened) => Promise<void>): Promise<void> {
    const opened = await KINDS[kind]()
    try {
      await work(opened)
    } finally {
      await opened.close()
    }
  }

  test('L22: returns the id that was claimed first, for each run and key', () =>
    withRegistry(async ({ registry }) => {
      const first = newId()
      expect(await registry.claim('run-1', KEY, first)).toBe(first)
      expect(await registry.claim('run-1', KEY, newId())).toBe(first)
      const others = [newId(), newId()]
      expect(await registry.claim('run-1', OTHER_KEY, others[0])).toBe(others[0])
      expect(await registry.claim('run-2', KEY, others[1])).toBe(others[1])
      expect(await registry.claim('run-1', KEY, newId())).toBe(first)
    }))

  test('L22: returns the same id after it is reopened', () =>
    withRegistry(async ({ registry, reopen }) => {
      const ids = [newId(), newId(), newId()]
      const runs = ['run-1', 'Lauf 🚀 "ä"\n', 'run 3']
      for (const [i, run] of runs.entries()) await registry.claim(run, KEY, ids[i])
      const again = await reopen()
      for (const [i, run] of runs.entries()) expect(await again.claim(run, KEY, newId())).toBe(ids[i])
    }))

  test('L22: concurrent claims of one key all get the same id', () =>
    withRegistry(async ({ registry, reopen }) => {
      const answers = await Promise.all(
        Array.from({ length: 50 }, () => registry.claim('run-1', KEY, newId())),
      )
      expect(new Set(answers).size).toBe(1)
      expect(isUuidV4(answers[0])).toBe(true)
      expect(await (await reopen()).claim('run-1', KEY, newId())).toBe(answers[0])
    }))

  test('L23: adopts the id that the ledger has, permanently', () =>
    withRegistry(async ({ registry, reopen }) => {
      await registry.claim('run-1', KEY, newId())
      const known = newId()
      await registry.adopt('run-1', KEY, known)
      await registry.adopt('run-1', KEY, known)
      expect(await registry.claim('run-1', KEY, newId())).toBe(known)
      const again = await reopen()
      expect(await again.claim('run-1', KEY, newId())).toBe(known)
      const unclaimed = newId()
      await again.adopt('run-2', KEY, unclaimed)
      expect(await again.claim('run-2', KEY, newId())).toBe(unclaimed)
    }))

  test('L20, L22: refuses a run id that is invalid in an event', () =>
    withRegistry(async ({ registry }) => {
      for (const runId of ['a|b', '|', '_shared', '', 'x'.repeat(257), '\ud800', 'a\0b']) {
        const refused = { code: 'INVALID_ARGUMENT' }
        await expect(registry.claim(runId, KEY, newId()), runId).rejects.toMatchObject(refused)
        await expect(registry.adopt(runId, KEY, newId()), runId).rejects.toMatchObject(refused)
      }
    }))

  test('L22: accepts only UUID v4 ids and SHA-256 keys', () =>
    withRegistry(async ({ registry }) => {
      for (const id of ['886313e1-3b8a-5372-9b90-0c9aee199e5d', KEY, '', 'x']) {
        await expect(registry.claim('run-1', KEY, id)).rejects.toMatchObject({
          code: 'INVALID_ARGUMENT',
        })
        await expect(registry.adopt('run-1', KEY, id)).rejects.toMatchObject({
          code: 'INVALID_ARGUMENT',
        })
      }
      for (const key of ['', 'x', KEY.toUpperCase(), `${KEY}0`]) {
        await expect(registry.claim('run-1', key, newId())).rejects.toMatchObject({
          code: 'INVALID_ARGUMENT',
        })
      }
    }))
})

describe('a registry in a file', () => {
  test('L22: the id is in the file when claim resolves', async () => {
    const path = newPath()
    const registry = await openFileRegistry(path)
    const id = newId()
    await registry.claim('run-1', KEY, id)
    expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual({
      runId: 'run-1',
      idempotencyKey: KEY,
      eventId: id,
    })
    await registry.close()
  })

  test('L22: an incomplete last line is removed, wherever it was cut', async () => {
    const path = newPath()
    const first = await openFileRegistry(path)
    const [kept, lost] = [newId(), newId()]
    await first.claim('run-1', KEY, kept)
    const { size } = statSync(path)
    await first.claim('run-ä', OTHER_KEY, lost)
    await first.close()
    const whole = readFileSync(path)
    for (let end = size; end < whole.length; end++) {
      writeFileSync(path, whole.subarray(0, end))
      const registry = await openFileRegistry(path)
      expect(statSync(path).size).toBe(size)
      expect(await registry.claim('run-1', KEY, newId())).toBe(kept)
      const fresh = newId()
      expect(await registry.claim('run-ä', OTHER_KEY, fresh)).toBe(fresh)
      await registry.close()
      const again = await openFileRegistry(path)
      expect(await again.claim('run-ä', OTHER_KEY, newId())).toBe(fresh)
      await again.close()
    }
  })

  test.each([
    ['not JSON', 'hello'],
    ['another object', '{"runId":"run-1"}'],
    ['an entry with an invalid id', JSON.stringify({ runId: 'r', idempotencyKey: KEY, eventId: 'x' })],
    ['an entry with an invalid key', JSON.stringify({ runId: 'r', idempotencyKey: 'x', eventId: newId() })],
    ['null', 'null'],
    ['a number', '7'],
  ])('L22: a line in the middle that is %s fails with CORRUPT and the line number', async (_, line) => {
    const path = newPath()
    const registry = await openFileRegistry(path)
    await registry.claim('run-1', KEY, newId())
    await registry.close()
    appendFileSync(path, `${line}\n`)
    appendFileSync(path, `${JSON.stringify({ runId: 'r', idempotencyKey: OTHER_KEY, eventId: newId() })}\n`)
    const before = readFileSync(path, 'utf8')
    await expect(openFileRegistry(path)).rejects.toMatchObject({
      code: 'CORRUPT',
      details: { file: path, line: 2 },
    })
    expect(readFileSync(path, 'utf8')).toBe(before)
  })

  test('a closed registry refuses claims, and may be closed twice', async () => {
    const registry = await openFileRegistry(newPath())
    const last = registry.claim('run-1', KEY, newId())
    await registry.close()
    expect(isUuidV4(await last)).toBe(true)
    await expect(registry.claim('run-1', OTHER_KEY, newId())).rejects.toMatchObject({ code: 'CLOSED' })
    await expect(registry.claim('run-1', KEY, newId())).rejects.toMatchObject({ code: 'CLOSED' })
    await registry.close()
  })
})
