import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { longestBlock } from '../../test/longest-block.ts'
import { AnnalsError } from '../core/errors.ts'
import { lockFolder } from './lock.ts'

const LOCK_MODULE = new URL('../../dist/disk/lock.js', import.meta.url).href
const ANSWER_MS_MAX = 100

/** A program that locks a folder, prints the result and keeps running. With a second argument it starts a child process. */
const HOLDER = `
import { spawn } from 'node:child_process'
import { lockFolder } from ${JSON.stringify(LOCK_MODULE)}
const start = performance.now()
try {
  await lockFolder(process.argv[2])
  const child = process.argv[3] && spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { detached: true, stdio: 'ignore' })
  console.log(JSON.stringify({ code: 'HELD', ms: performance.now() - start, child: child?.pid }))
  setInterval(() => {}, 1000)
} catch (error) {
  console.log(JSON.stringify({ code: error.code, ms: performance.now() - start, details: error.details }))
}
`

interface Answer {
  readonly code: string
  readonly ms: number
  readonly child?: number
  readonly details?: unknown
}

describe('the folder lock', () => {
  let root: string
  let folder: string
  let children: ChildProcess[]

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'annals-lock-'))
    folder = join(root, 'store')
    mkdirSync(folder)
    writeFileSync(join(root, 'holder.mjs'), HOLDER)
    children = []
  })

  afterEach(() => {
    vi.unstubAllEnvs()
    for (const child of children) child.kill('SIGKILL')
    rmSync(root, { recursive: true })
  })

  async function startHolder(...more: string[]): Promise<{ process: ChildProcess; answer: Answer }> {
    const child = spawn(process.execPath, [join(root, 'holder.mjs'), folder, ...more], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    const [line] = await once(createInterface({ input: child.stdout! }), 'line')
    return { process: child, answer: JSON.parse(String(line)) }
  }

  async function kill(child: ChildProcess): Promise<void> {
    child.kill('SIGKILL')
    await once(child, 'exit')
  }

  it('is refused to a second process with LOCKED within 100 ms, without changing the folder', async () => {
    const first = await startHolder()
    expect(first.answer.code).toBe('HELD')
    const second = await startHolder()
    expect(second.answer).toMatchObject({ code: 'LOCKED', details: { path: folder } })
    expect(second.answer.ms).toBeLessThan(ANSWER_MS_MAX)
    if (process.platform === 'linux') expect(readdirSync(folder)).toEqual([])
  })

  it('is free as soon as its holder is killed', async () => {
    const first = await startHolder()
    await kill(first.process)
    ;(await lockFolder(folder)).release()
  })

  it('is free as soon as its holder is killed, even if a child of the holder still runs', async () => {
    const first = await startHolder('with-child')
    const grandchild = first.answer.child!
    try {
      await kill(first.process)
      expect(() => process.kill(grandchild, 0)).not.toThrow()
      ;(await lockFolder(folder)).release()
    } finally {
      process.kill(grandchild, 'SIGKILL')
    }
  })

  it('is refused to the process that has it, and free after release', async () => {
    const lock = await lockFolder(folder)
    await expect(lockFolder(folder)).rejects.toThrow(expect.objectContaining({ code: 'LOCKED' }))
    lock.release()
    lock.release()
    ;(await lockFolder(folder)).release()
  })

  it('survives the release of another lock of the same process', async () => {
    // POSIX record locks would fail here, because closing any descriptor of a file releases all of its locks.
    const lock = await lockFolder(folder)
    mkdirSync(join(root, 'other'))
    ;(await lockFolder(join(root, 'other'))).release()
    await expect(lockFolder(folder)).rejects.toThrow(AnnalsError)
    await expect(lockFolder(folder)).rejects.toThrow(AnnalsError)
    lock.release()
  })

  it('belongs to the folder, not to its name', async () => {
    const lock = await lockFolder(folder)
    renameSync(folder, join(root, 'moved'))
    await expect(lockFolder(join(root, 'moved'))).rejects.toThrow(expect.objectContaining({ code: 'LOCKED' }))
    lock.release()
  })

  // reason: other platforms use a lock file, which needs a writable folder
  it.runIf(process.platform === 'linux')('works in a read-only folder', async () => {
    chmodSync(folder, 0o555)
    const lock = await lockFolder(folder)
    await expect(lockFolder(folder)).rejects.toThrow(expect.objectContaining({ code: 'LOCKED' }))
    lock.release()
  })

  // reason: other platforms don't use the flock command
  it.runIf(process.platform === 'linux')(
    'is refused with an explanation if the flock command is missing',
    async () => {
      vi.stubEnv('PATH', root)
      await expect(lockFolder(folder)).rejects.toThrow(
        expect.objectContaining({ code: 'IO_ERROR', message: expect.stringContaining('util-linux') }),
      )
    },
  )

  // reason: other platforms don't use the flock command
  it.runIf(process.platform === 'linux')('fails with the error output of the flock command', async () => {
    writeFileSync(join(root, 'flock'), '#!/bin/sh\necho "flock: 3: No locks available" >&2\nexit 71\n', {
      mode: 0o755,
    })
    vi.stubEnv('PATH', root)
    await expect(lockFolder(folder)).rejects.toThrow(
      expect.objectContaining({ code: 'IO_ERROR', message: expect.stringContaining('No locks available') }),
    )
  })

  // reason: other platforms don't use the flock command
  it.runIf(process.platform === 'linux')('does not block the event loop while the command runs', async () => {
    const slowMs = 300
    writeFileSync(join(root, 'flock'), `#!/bin/sh\nsleep ${slowMs / 1_000}\n`, { mode: 0o755 })
    vi.stubEnv('PATH', `${root}:${process.env['PATH']}`)
    const blockMs = await longestBlock(async () => (await lockFolder(folder)).release(), 3, slowMs / 2)
    expect(blockMs).toBeLessThan(slowMs / 2)
  })
})
