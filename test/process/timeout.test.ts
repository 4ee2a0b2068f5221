import { spawnSync } from 'node:child_process'
import { expect, it } from 'vitest'

/** A process ends when it has nothing left to do, which only a separate process can show. */
const ENTRY = new URL('../../dist/index.js', import.meta.url)

function run(code: string): { readonly status: number | null; readonly output: string } {
  const program = `import { open } from '${ENTRY}'\nconst db = await open({ memory: true })\n${code}`
  const args = ['--input-type=module', '--eval', program]
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 30_000 })
  return { status, output: stdout + stderr }
}

it('a transaction that waits forever times out, also in a process with nothing else to do', () => {
  const ended = run(`
    const never = () => new Promise(() => {})
    const error = await db.transaction('r', never, { timeoutMs: 50 }).catch(reason => reason)
    console.log(error.code)
  `)
  expect(ended).toEqual({ status: 0, output: 'TIMEOUT\n' })
})

it('neither an ended nor an abandoned transaction keeps a process alive', () => {
  const start = performance.now()
  const ended = run(`
    await db.transaction('r', tx => tx.kv.put('k', 1), { timeoutMs: 1_000_000 })
    await db.begin('r', { timeoutMs: 1_000_000 })
    console.log('done')
  `)
  expect(ended).toEqual({ status: 0, output: 'done\n' })
  expect(performance.now() - start).toBeLessThan(30_000)
})
