import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { open } from '../../src/index.ts'
import { skipBecause } from '../skipping.ts'
import { annals, CONTROL, makeStore, newFolder, PROGRAM, start } from './annals-command.ts'

/** Output to terminals, and long output. */

const hasScript = spawnSync('script', ['--version']).status === 0
if (!hasScript) skipBecause('there is no command `script`, which gives a program a terminal')

/** The output of the command in a terminal. */
function inTerminal(args: readonly string[], env: NodeJS.ProcessEnv = {}, columns?: number): string {
  const own = [process.execPath, PROGRAM, ...args].map(word => `'${word}'`).join(' ')
  const command = columns === undefined ? own : `stty cols ${columns}; ${own}`
  const { stdout } = spawnSync('script', ['-qec', command, '/dev/null'], {
    encoding: 'utf8',
    env: { ...process.env, TERM: 'xterm', NO_COLOR: '', ...env },
    timeout: 20_000,
  })
  return stdout.replaceAll('\r\n', '\n')
}

// reason: needs the command `script`, which provides a terminal
describe.skipIf(!hasScript)('in a terminal', () => {
  let data = ''
  beforeAll(async () => {
    data = await makeStore()
  })
  /** The colours that the program itself uses. */
  const COLOR = /\u001b\[\d+m/g

  test('there are colours, unless NO_COLOR is set or TERM is dumb; in a pipe there are none', async () => {
    expect(inTerminal(['runs', '--data', data])).toMatch(COLOR)
    expect(inTerminal(['runs', '--data', data], { NO_COLOR: '1' })).not.toMatch(COLOR)
    expect(inTerminal(['runs', '--data', data], { TERM: 'dumb' })).not.toMatch(COLOR)
    expect((await annals(['runs', '--data', data])).stdout).not.toMatch(COLOR)
  })

  test('control characters in payloads do not reach it', () => {
    for (const command of [
      ['show', 'nightly-1'],
      ['events', 'nightly-1'],
      ['events', 'agent-1', '--json'],
      ['traces', 'agent-1'],
    ]) {
      const seen = inTerminal([...command, '--data', data], {}, 200).replace(COLOR, '')
      expect(seen, command.join(' ')).toContain('\\u001b[2J'.slice(0, 6))
      expect(seen, command.join(' ')).not.toMatch(CONTROL)
    }
  })

  test.each([
    [80, '0197f6a2-7c3e-7d2f-9b1a-5f0e8c4d2b61'],
    [60, '0197f6a2-7c3e-7d2f-9b1a-5f0e8c4d2b61'],
    [40, 'a-run-whose-id-is-longer-than-the-terminal-is-wide'],
  ])('an id is never cut: other columns are shortened, in %i columns', async (columns, runId) => {
    const folder = newFolder()
    const db = await open({ path: folder })
    await db.runs.create({ runId, tags: ['nightly', 'a-long-tag-of-somebody', 'another'] })
    await db.close()
    const [titles, line] = inTerminal(['runs', '--data', folder], { NO_COLOR: '1' }, columns).split('\n')
    expect(line.split(' ')[0]).toBe(runId)
    expect(line).toContain('Running')
    expect(titles).toMatch(/^RUN +STATUS/)
    const room = Math.max(columns, runId.length + '  Running  nightly…'.length)
    expect(line.length).toBeLessThanOrEqual(room)
    // A time is shown completely or not at all.
    expect(line).not.toMatch(/\d…/)
  })

  test('a bundle is not printed to it', () => {
    expect(inTerminal(['export', 'nightly-1', '--data', data])).toContain(
      'add -o FILE, or redirect it with > FILE',
    )
  })
})

describe('a long run', () => {
  const EVENTS = 24_000
  let data = ''
  let bytes = 0
  beforeAll(async () => {
    data = newFolder()
    const db = await open({ path: data, durability: 'relaxed' })
    const text = 'x'.repeat(4_000)
    for (let n = 0; n < EVENTS; n += 1_000) {
      const batch = Array.from({ length: 1_000 }, (_, i) => ({ type: 'note', payload: { n: n + i, text } }))
      await db.events.appendBatch('long', batch)
    }
    await db.close()
    bytes = EVENTS * text.length
  })

  test('is exported in a memory that does not depend on its length', async () => {
    const { child, ended } = start(['export', 'long', '--data', data])
    let seen = 0
    let peakKb = 0
    child.stdout?.removeAllListeners('data').on('data', (chunk: string) => {
      seen += chunk.length
      // Read before the output ends, because the process still runs then.
      if (seen > bytes * 0.95 && peakKb === 0) {
        const [, kb] = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8')) ?? []
        peakKb = Number(kb)
      }
    })
    expect((await ended).code).toBe(0)
    expect(seen).toBeGreaterThan(bytes)
    console.log(`${Math.round(seen / 1e6)} MB were exported with a peak of ${Math.round(peakKb / 1e3)} MB`)
    expect(peakKb).toBeGreaterThan(0)
    // Node and an idle store take about 90 MB. The whole run in memory would add 100 MB.
    expect(peakKb).toBeLessThan(160_000)
  })

  test('interrupted while it is written, leaves no file', async () => {
    const folder = newFolder()
    mkdirSync(folder)
    const { child, ended } = start(['export', 'long', '--data', data, '-o', join(folder, 'long.bundle')])
    await new Promise<void>(resolve => {
      const timer = setInterval(() => {
        if (readdirSync(folder).length === 0) return
        clearInterval(timer)
        resolve()
      }, 2)
    })
    child.kill('SIGINT')
    expect((await ended).code).toBe(130)
    expect(readdirSync(folder)).toEqual([])
  })
})
