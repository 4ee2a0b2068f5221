import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Random, seedOfRun } from '../src/testing/random.ts'
import { rounds } from './rounds.ts'

/** Compiles the programs in examples/ against the built package, as their readers would, and runs them. */
const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))

// The folder is inside the package, so that `import 'annals'` resolves to the package itself, as it would after an install.
mkdirSync(join(ROOT, 'temp'), { recursive: true })
const folder = mkdtempSync(join(ROOT, 'temp', 'examples-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

beforeAll(() => {
  const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
  const args = [compiler, '-p', join(ROOT, 'examples'), '--outDir', folder]
  execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' })
})

function run(example: string, ...args: readonly string[]): string {
  const program = join(folder, `${example}.js`)
  return execFileSync(process.execPath, [program, ...args], { encoding: 'utf8', timeout: 30_000 })
}

test('agent-memory does its work once, and remembers the result', () => {
  const path = join(folder, 'memory')
  const first = run('agent-memory', path)
  expect(first).toContain('run research-42 is Active')
  expect(first).toContain('attempt 1')
  expect(first).toContain('the hash chain of 3 events is intact')
  expect(first).toContain('3 traces; the search led to 1 thought')
  const second = run('agent-memory', path)
  expect(second).toContain('run research-42 is Completed')
  expect(second).toContain('attempt 2')
  // The events have the same hashes, so no completed step was repeated.
  const events = (output: string): string[] => output.split('\n').filter(line => line.startsWith('  '))
  expect(events(second)).toEqual(events(first))
  expect(events(first)).toHaveLength(3)
})

/** Makes a copy of the example that kills itself at the await with the number `DIE_AT`. */
function makeMortal(example: string): string {
  const code = readFileSync(join(folder, `${example}.js`), 'utf8')
  const mortal = code.replaceAll(/(?<!for )\bawait /g, 'await reached() || await ')
  const prelude = `let awaits = 0
async function reached() {
  if (++awaits !== Number(process.env.DIE_AT)) return
  process.kill(process.pid, 'SIGKILL')
  await new Promise(resolve => setTimeout(resolve, 60_000))
}
`
  const program = join(folder, `${example}-mortal.js`)
  writeFileSync(program, prelude + mortal)
  return program
}

/** Which of its awaits the example is killed at: one in so many. */
const EVERY = rounds(4, 1)

test('agent-memory reaches the same end after being killed at any of its awaits and run again', () => {
  const program = makeMortal('agent-memory')
  const outcome = (output: string): string[] => {
    const lines = output.trim().split('\n')
    // Hashes depend on the time, so they are removed.
    return lines
      .slice(lines.findIndex(line => line.startsWith('attempt')) + 1)
      .map(line => line.replace(/\b[0-9a-f]{12}$/, ''))
  }
  const expected = outcome(run('agent-memory', join(folder, 'immortal')))
  expect(expected.at(-1)).toBe('research-42 is Completed')
  const first = 1 + new Random(seedOfRun()).below(EVERY)
  console.log(`killed at every ${EVERY}th await, from ${first} on`)
  let at = first
  for (; ; at += EVERY) {
    const path = join(folder, `memory-${at}`)
    const env = { ...process.env, DIE_AT: String(at) }
    const { signal, stderr } = spawnSync(process.execPath, [program, path], {
      env,
      encoding: 'utf8',
      timeout: 30_000,
    })
    expect(stderr).toBe('')
    expect(outcome(run('agent-memory', path)), `killed at await ${at}`).toEqual(expected)
    if (signal === null) break
  }
  expect(at).toBeGreaterThan(25)
}, 600_000)

test('ledger continues after a simulated power loss, and has each event once', () => {
  const path = join(folder, 'books')
  const lines = (output: string): string[] => output.trim().split('\n')
  const records = (output: string): string[] => lines(output).filter(line => line.startsWith('  '))
  expect(lines(run('ledger', path))).toEqual([
    'a new run',
    'fetch is done',
    'the process dies in the middle of parse',
  ])
  const second = run('ledger', path)
  expect(lines(second).filter(line => !line.startsWith('  '))).toEqual([
    'a run that is RUNNING',
    'fetch is done; it had started before',
    'parse is done; it had started before',
    'store is done',
    'sent again: persisted is false, the record is still number 1',
    'COMPLETED: fetch SUCCESS, parse SUCCESS, store SUCCESS',
    'after three records it was RUNNING, with 1 step',
    'the run is COMPLETED and INCONSISTENT',
    'alert: RunPaused, but the run is COMPLETED',
    'the hash chain of 9 records is intact',
  ])
  expect(records(second)).toHaveLength(9)
  // A third run has nothing to do, so the events and their ids stay the same.
  const third = run('ledger', path)
  expect(third).toContain('a run that is COMPLETED')
  expect(records(third)).toEqual(records(second))
})

test('keyv-sessions keeps a session over a restart, and drops the expired one', () => {
  const path = join(folder, 'sessions')
  expect(run('keyv-sessions', path)).toBe('visit 1\nstored: web:session-1\n')
  expect(run('keyv-sessions', path)).toBe('visit 2\nstored: web:session-1\n')
})

test('level-index finds the notes of a word, and stays consistent over a restart', () => {
  const path = join(folder, 'notes')
  const found = 'tree: note-1, note-3\nhash: note-2\nthe last note is note-3\n'
  expect(run('level-index', path)).toBe(found)
  expect(run('level-index', path)).toBe(found)
})

test('docs-launch passes every state and ends with a branch of pages', () => {
  const output = run('docs-launch/main', join(folder, 'docs'))
  expect(output).toContain('run completed in state DONE')
  expect(output).toContain('replayed to state DONE')
  expect(output).toContain('RESOLVED: pages/queue.md has no title')
  expect(output).toContain('RESOLVED: pages/stack.md links to tutorial.md')
  expect(output).toContain('3 files changed')
  expect(output).toContain('the ledger says COMPLETED after 15 steps')
})

test('docs-launch fails with its reason, and can be cancelled', () => {
  const failed = run('docs-launch/main', join(folder, 'failed'), 'failure')
  expect(failed).toMatch(
    /run failed in state FAILED: the call \S+ failed: HTTP 400: the model does not write documentation/,
  )
  expect(failed).toContain('the ledger says FAILED')
  const cancelled = run('docs-launch/main', join(folder, 'cancelled'), 'cancellation')
  expect(cancelled).toContain('run cancelled in state CANCELLED')
  expect(cancelled).toContain('the ledger says CANCELLED')
})
