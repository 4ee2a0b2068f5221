import { afterEach, describe, expect, it } from 'vitest'
import { TAGS } from '../../src/engine/keys.ts'
import { type Commanded, command } from './commanded.ts'
import { newFolder, openStore } from './folder.ts'

/**
 * Failure matrix: without file descriptors a process behaves as with a full disk. Its operations fail, and work again
 * once descriptors are free.
 */

/** Node raises the soft limit by itself, so the hard limit must be low. */
const LIMITED = ['sh', '-c', 'ulimit -n 64; exec "$@"', 'sh']

let running: Commanded | undefined
afterEach(async () => running?.end())

const OUT = {
  code: 'IO_ERROR',
  message: expect.stringContaining('file descriptor'),
  details: { cause: 'EMFILE' },
}

describe.each(['durable', 'relaxed'])('no file descriptor is left, %s', durability => {
  it('without descriptors a checkpoint is refused, commits and reads work, and with descriptors everything works again', async () => {
    const folder = newFolder()
    const a = await command(folder, { durability }, LIMITED)
    running = a
    await a.tell('put', 'before')
    expect(await a.tell('exhaust')).toEqual({ value: 'EMFILE' })
    expect(await a.tell('checkpoint')).toMatchObject(OUT)
    expect(await a.tell('checkpoint')).toMatchObject(OUT)
    expect(await a.tell('put', 'meanwhile')).toEqual({ value: 'committed' })
    expect(await a.tell('get', 'before')).toEqual({ value: 'x' })
    expect(await a.tell('stats')).toMatchObject({ value: { writable: true } })
    await a.tell('release')
    expect(await a.tell('checkpoint')).toEqual({})
    expect(await a.tell('put', 'after')).toEqual({ value: 'committed' })
    expect(await a.tell('close')).toEqual({})
    await a.end()
    const store = await openStore(folder, { verifyOnOpen: true })
    const keys = (await store.scan({ scope: 's', tag: TAGS.kv })).map(({ key }) => key)
    expect(keys).toEqual(['after', 'before', 'meanwhile'])
    await store.close()
  })

  it('a first commit that needs a descriptor is refused, reported as not writable, and possible later', async () => {
    const folder = newFolder()
    const a = await command(folder, { durability }, LIMITED)
    running = a
    await a.tell('exhaust')
    expect(await a.tell('writable')).toMatchObject(OUT)
    expect(await a.tell('put', 'refused')).toMatchObject(OUT)
    expect(await a.tell('stats')).toMatchObject({
      value: { writable: false, writeProblem: { code: 'IO_ERROR' } },
    })
    await a.tell('release')
    expect(await a.tell('writable')).toEqual({})
    expect(await a.tell('stats')).toMatchObject({ value: { writable: true } })
    expect(await a.tell('put', 'after')).toEqual({ value: 'committed' })
    expect(await a.tell('get', 'refused')).toEqual({})
  })
})
