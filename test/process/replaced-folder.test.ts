import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { TAGS } from '../../src/engine/keys.ts'
import { type Commanded, command } from './commanded.ts'
import { fingerprint, newFolder, openStore } from './folder.ts'

/**
 * Failure matrix: a folder is removed, moved or replaced while a process has it open. The process notices it before it
 * creates or replaces a file, so a new store at the same path loses nothing.
 */
const EVENTS = 177
const OTHERS = 40

let first: Commanded | undefined
afterEach(async () => first?.end())

async function start(durability: string): Promise<{ readonly folder: string; readonly a: Commanded }> {
  const folder = join(newFolder(), 'data')
  mkdirSync(dirname(folder), { recursive: true })
  // So small that a segment is prepared and used after a few commits.
  const a = await command(folder, { durability, prepareBytes: 20_000 })
  first = a
  expect(await a.tell('put', 'before')).toEqual({ value: 'committed' })
  return { folder, a }
}

const GONE = {
  moved: (folder: string) => renameSync(folder, `${folder}-moved`),
  deleted: (folder: string) => rmSync(folder, { recursive: true }),
} as const

/** Operations that make the first process create files. */
const ACTIONS = {
  append: ['put', 'x'],
  checkpoint: ['checkpoint'],
  rotation: ['rotate', 60],
  close: ['close'],
}

describe.each(['durable', 'relaxed'])('%s', durability => {
  describe.each(Object.entries(GONE))('a folder that is %s', (_how, takeAway) => {
    it.each(Object.entries(ACTIONS))(
      'and replaced: the new store keeps its events through %s',
      async (name, words) => {
        const { folder, a } = await start(durability)
        takeAway(folder)
        const b = await openStore(folder, { durability: 'durable' })
        const event = (i: number) =>
          b.commit({ operations: [{ op: 'put', scope: 's', tag: TAGS.kv, key: `e${i}`, value: String(i) }] })
        for (let i = 0; i < EVENTS; i++) {
          await event(i)
          if (i % 60 === 20) await b.checkpoint()
        }
        const before = fingerprint(folder)
        const answers = []
        for (let i = 0; i < 3; i++) answers.push(await a.tell(...words))
        expect(fingerprint(folder)).toEqual(before)
        for (let i = EVENTS; i < EVENTS + OTHERS; i++) await event(i)
        await b.checkpoint()
        await b.close()
        const again = await openStore(folder, { verifyOnOpen: true })
        expect(await again.scan({ scope: 's', tag: TAGS.kv })).toHaveLength(EVENTS + OTHERS)
        await again.close()
        expect(answers[0]).toMatchObject({
          code: 'IO_ERROR',
          message: expect.stringContaining('removed, moved or replaced'),
          details: { path: folder },
        })
        if (name !== 'close') expect(answers[2].code).toMatch(/^(READ_ONLY|IO_ERROR)$/)
      },
    )

    it('and not replaced: no commit is acknowledged, and nothing appears at its path', async () => {
      const { folder, a } = await start(durability)
      takeAway(folder)
      expect(await a.tell('put', 'after')).toMatchObject({ code: 'IO_ERROR', details: { path: folder } })
      expect(await a.tell('put', 'later')).toMatchObject({ code: 'READ_ONLY' })
      expect(await a.tell('checkpoint')).toMatchObject({ code: 'IO_ERROR' })
      expect(await a.tell('close')).toEqual({})
      expect(existsSync(folder)).toBe(false)
    })
  })

  it('a moved folder opens at its new path, with every acknowledged commit', async () => {
    const { folder, a } = await start(durability)
    renameSync(folder, `${folder}-moved`)
    expect(await a.tell('put', 'after')).toMatchObject({ code: 'IO_ERROR' })
    await a.end()
    const store = await openStore(`${folder}-moved`)
    expect((await store.scan({ scope: 's', tag: TAGS.kv })).map(({ key }) => key)).toEqual(['before'])
    await store.close()
  })
})
