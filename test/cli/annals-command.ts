import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach } from 'vitest'
import { type Annals, createProducer, open } from '../../src/index.ts'
import { PLAN } from '../ledger/run-event.ts'
import { type Outcome, ProgramHost } from '../program-host.ts'

/** Runs the built command outside the test process, and makes stores for it. */

export const PROGRAM: string = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const root: string = mkdtempSync(join(tmpdir(), 'annals-cli-'))
const children = new Set<ChildProcess>()
let folders = 0

afterEach(() => {
  for (const child of children) child.kill('SIGKILL')
  children.clear()
  // A command that outlives its test must not run into the next one.
  if (host?.isBusy === true) stopHost()
})
afterAll(() => {
  stopHost()
  rmSync(root, { recursive: true, force: true })
})

/** A path that does not exist yet. */
export function newFolder(): string {
  return join(root, `folder-${folders++}`)
}

export interface Running {
  readonly child: ChildProcess
  readonly ended: Promise<Outcome>
  /** Resolves when this text was printed on either stream. */
  printed(text: string): Promise<void>
  /** The output of both streams so far. */
  said(): string
}

export interface RunOptions {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  readonly input?: string | Uint8Array
}

const CLEAN_ENV: NodeJS.ProcessEnv = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^(ANNALS|TELEMETRY)_|^NO_COLOR$|^FORCE_COLOR$/.test(name)),
)

/** Starts the command and does not wait for it. */
export function start(args: readonly string[], options: RunOptions = {}): Running {
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    cwd: options.cwd ?? root,
    env: { ...CLEAN_ENV, ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  children.add(child)
  const text = { stdout: '', stderr: '' }
  const listeners = new Set<() => void>()
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (chunk: string) => {
      text[name] += chunk
      for (const listener of listeners) listener()
    })
  }
  child.stdin.end(options.input ?? '')
  const ended = once(child, 'close').then(([code]) => {
    children.delete(child)
    for (const listener of listeners) listener()
    return { code: code as number | null, ...text }
  })
  const printed = (wanted: string): Promise<void> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        if (!`${text.stdout}${text.stderr}`.includes(wanted)) {
          if (child.exitCode === null && child.signalCode === null) return
          reject(new Error(`ended without saying ${wanted}: ${text.stdout}${text.stderr}`))
        } else resolve()
        listeners.delete(look)
      }
      listeners.add(look)
      look()
    })
  return { child, ended, printed, said: () => `${text.stdout}${text.stderr}` }
}

let host: ProgramHost | undefined

/** Runs a command in a process that all commands of the test file share. `start` runs a command in a process of its own. */
export function annals(args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
  host ??= new ProgramHost()
  const { cwd = root, env, input = '' } = options
  return host.run({ program: PROGRAM, args, cwd, env: { ...CLEAN_ENV, ...env }, input })
}

function stopHost(): void {
  host?.stop()
  host = undefined
}

/** Text that moves the cursor, clears the screen, sets the title and reverses the direction of a line. */
const HOSTILE = '\u001b[2J\u001b]0;owned\u0007\u009b31m\u202eevil\r\n\u0000'

/** Adds a run of ten records with two steps. One of them fails and is retried. */
export async function addRun(db: Annals, runId: string, more: object = {}): Promise<void> {
  const producer = createProducer({ ...PLAN, store: db.ledger, registry: db.ledger.registry, runId })
  await producer.runStarted({ note: HOSTILE, ...more })
  await producer.stepStarted('fetch')
  await producer.stepCompleted('fetch', { rows: 42 })
  await producer.stepStarted('parse')
  await producer.stepFailed('parse', { code: 'BAD', message: `no number ${HOSTILE}`, retryable: true })
  await producer.stepStarted('parse')
  await producer.stepCompleted('parse')
  await producer.runCompleted()
  await db.ledger.projectSnapshot(runId)
}

/** Makes a store with runs of every kind, and returns its folder. */
export async function makeStore(): Promise<string> {
  const path = newFolder()
  const db = await open({ path })
  await db.runs.create({ runId: 'nightly-1', tags: ['nightly'], metadata: { model: HOSTILE } })
  await addRun(db, 'nightly-1')
  await addRun(db, 'nightly-2')
  await db.runs.create({ runId: 'agent-1', tags: ['agent'], parentRun: 'nightly-1' })
  for (const n of [1, 2, 3]) await db.events.append('agent-1', 'note', { n, text: HOSTILE })
  const call = await db.traces.record('agent-1', {
    type: 'ToolCall',
    toolName: 'search',
    arguments: { q: HOSTILE },
  })
  await db.traces.recordChild(
    'agent-1',
    call,
    { type: 'Thought', content: 'two results' },
    { tags: ['plan'] },
  )
  // A run without an entry in the index.
  await db.events.append('unlisted', 'note', 'hello')
  await db.close()
  return path
}

/** Characters that a terminal would interpret. */
export const CONTROL: RegExp = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/
