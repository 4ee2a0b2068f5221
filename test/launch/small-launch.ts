import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import { sha256Hex } from '../../src/core/hash.ts'
import { verifyLog } from '../../src/launch/chain.ts'
import type { AnyNodeContext, FixInput, GateContext, WorkerContext } from '../../src/launch/context.ts'
import { defineLaunch, defineWorker, type FoundIssue, type Launch } from '../../src/launch/definition.ts'
import type { LaunchEvent, LaunchSnapshot } from '../../src/launch/events.ts'

/** A launch of four states. Tests bring its parts. */

const root = mkdtempSync(join(tmpdir(), 'annals-launch-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

export function newRunsFolder(): string {
  return mkdtempSync(join(root, 'runs-'))
}

export const SMALL_STATES = {
  initial: 'READY',
  done: 'DONE',
  failed: 'FAILED',
  cancelled: 'CANCELLED',
  states: {
    READY: { kind: 'stable', next: ['WORKING'] },
    WORKING: { kind: 'transitional', next: ['CHECKING', 'DONE'], rewindTo: 'READY' },
    CHECKING: { kind: 'transitional', next: ['MENDING', 'DONE'], rewindTo: 'READY' },
    MENDING: { kind: 'transitional', next: ['CHECKING'], rewindTo: 'READY' },
    DONE: { kind: 'terminal' },
    FAILED: { kind: 'terminal' },
    CANCELLED: { kind: 'terminal' },
  },
} as const

interface Parts {
  readonly work?: (input: unknown, context: WorkerContext) => unknown
  readonly mend?: (input: FixInput, context: WorkerContext) => unknown
  readonly node?: (context: AnyNodeContext) => Promise<unknown>
  readonly gate?: (context: GateContext) => readonly FoundIssue[] | Promise<readonly FoundIssue[]>
  readonly worker?: {
    readonly attemptsMax?: number
    readonly backoffMs?: number
    readonly timeoutMs?: number
    readonly concurrency?: number
  }
  readonly concurrency?: number
}

/** READY → WORKING, where `node` calls `work` → CHECKING, if there is a gate ⇄ MENDING → DONE. */
export function smallLaunch(parts: Parts): Launch {
  const { work = () => undefined, mend = () => undefined, gate, node, worker = {}, concurrency } = parts
  return defineLaunch({
    name: 'small',
    version: '1',
    states: SMALL_STATES,
    workers: {
      work: defineWorker({ ...worker, run: (input: unknown, context) => work(input, context) }),
      mend: defineWorker({ run: (input: FixInput, context) => mend(input, context), backoffMs: 1 }),
    },
    gates: gate === undefined ? {} : { gate: { run: gate } },
    fixer: 'mend',
    ...(concurrency === undefined ? {} : { concurrency }),
    nodes: [
      { name: 'begin', state: 'READY', run: async () => 'WORKING' },
      {
        name: 'work',
        state: 'WORKING',
        run: async ctx => {
          if (node === undefined) await ctx.work('work')
          else await node(ctx as AnyNodeContext)
          return gate === undefined ? 'DONE' : 'CHECKING'
        },
      },
      {
        name: 'check',
        state: 'CHECKING',
        run: async ctx => ((await ctx.validate()).ok ? 'DONE' : 'MENDING'),
      },
      {
        name: 'mend',
        state: 'MENDING',
        run: async ctx => {
          await ctx.fix()
          return 'CHECKING'
        },
      },
    ],
  })
}

export function eventsIn(folder: string, runId: string): readonly LaunchEvent[] {
  return verifyLog(readFileSync(join(folder, runId, 'events.ndjson')), runId).events
}

export function snapshotIn(folder: string, runId: string): LaunchSnapshot {
  return JSON.parse(readFileSync(join(folder, runId, 'snapshot.json'), 'utf8')) as LaunchSnapshot
}

/** The items of a snapshot with their status. */
export function itemsIn(folder: string, runId: string): string[] {
  return snapshotIn(folder, runId).work_items.map(({ work_item_id, status }) => `${work_item_id} ${status}`)
}

/** The hashes of all files below a folder. */
export function fingerprint(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, withFileTypes: true })
  return Object.fromEntries(
    names
      .filter(entry => entry.isFile())
      .map(entry => join(entry.parentPath, entry.name))
      .sort()
      .map(path => [path, sha256Hex(readFileSync(path))]),
  )
}

/** A promise that a test settles. */
export function gateway(): { readonly passed: Promise<void>; readonly open: () => void } {
  let open: () => void = () => undefined
  const passed = new Promise<void>(resolve => {
    open = resolve
  })
  return { passed, open }
}
