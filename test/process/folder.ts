import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, expect } from 'vitest'
import { sha256Hex } from '../../src/core/hash.ts'
import { openNodeDisk } from '../../src/disk/node-disk.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { type EmbeddedOptions, openEmbedded } from '../../src/embedded/open.ts'
import { TAGS } from '../../src/engine/keys.ts'

/** Temporary folders for tests, with stores and with processes that open them. */

const VISITOR = fileURLToPath(new URL('visitor.mjs', import.meta.url))
const root: string = mkdtempSync(join(tmpdir(), 'annals-process-'))
const children = new Set<ChildProcess>()
let folders = 0

afterEach(() => {
  for (const child of children) child.kill('SIGKILL')
  children.clear()
})
afterAll(() => rmSync(root, { recursive: true, force: true }))

/** The parent of all folders in this test file. */
export { root as rootFolder }

/** A path that does not exist yet. */
export function newFolder(): string {
  return join(root, `folder-${folders++}`)
}

export function openStore(folder: string, more: EmbeddedOptions = {}): Promise<EmbeddedStore> {
  const readOnly = more.readOnly === true
  return openEmbedded({ disk: openNodeDisk(folder, { readOnly }), warn: () => undefined, ...more })
}

/** Adds commits up to number `last`. Commit n writes `k(n % 100)` and `last`, so the content of every version is known. */
export async function commitUpTo(store: EmbeddedStore, last: number): Promise<void> {
  for (let n = store.stats().version + 1; n <= last; n++) await commitNumber(store, n)
}

export async function commitNumber(store: EmbeddedStore, n: number): Promise<void> {
  const value = String(n)
  const outcome = await store.commit({
    operations: [
      { op: 'put', scope: 's', tag: TAGS.kv, key: `k${n % 100}`, value },
      { op: 'put', scope: 's', tag: TAGS.kv, key: 'last', value },
    ],
  })
  expect(outcome).toMatchObject({ status: 'committed', version: n })
}

/** Checks that the store holds exactly the first commits of `commitNumber`, as many as its version says. */
export async function checkNumbers(store: EmbeddedStore): Promise<number> {
  const { version } = store.stats()
  const expected = new Map<string, string>()
  for (let n = Math.max(1, version - 99); n <= version; n++) expected.set(`k${n % 100}`, String(n))
  if (version > 0) expected.set('last', String(version))
  const found = await store.scan({ scope: 's', tag: TAGS.kv })
  expect(found.map(({ key, value }) => [key, value])).toEqual(
    [...expected].sort(([a], [b]) => (a < b ? -1 : 1)),
  )
  await store.verify()
  return version
}

/** The hash of every file. */
export function fingerprint(folder: string): Record<string, string> {
  const names = readdirSync(folder).sort()
  return Object.fromEntries(names.map(name => [name, sha256Hex(readFileSync(join(folder, name)))]))
}

/** A folder as a killed process leaves it: a checkpoint, and later commits in the log only. */
export async function makeUnclosed(commits: number): Promise<string> {
  const folder = newFolder()
  const copy = newFolder()
  const store = await openStore(folder)
  await commitUpTo(store, Math.floor(commits / 2))
  await store.checkpoint()
  await commitUpTo(store, commits)
  cpSync(folder, copy, { recursive: true })
  await store.close()
  return copy
}

export async function makeClosed(commits: number): Promise<string> {
  const folder = newFolder()
  const store = await openStore(folder)
  await commitUpTo(store, commits)
  await store.close()
  return folder
}

interface Visit {
  readonly code: string
  readonly name?: string
  readonly message?: string
  readonly details?: Readonly<Record<string, unknown>>
  readonly ms: number
  readonly read?: string
  readonly wrote?: string
}

interface Visitor {
  readonly process: ChildProcess
  readonly visit: Visit
}

export async function visit(folder: string, settings: Record<string, unknown> = {}): Promise<Visitor> {
  const child = spawn(process.execPath, [VISITOR, folder, JSON.stringify(settings)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.add(child)
  const [line] = await once(createInterface({ input: child.stdout! }), 'line')
  return { process: child, visit: JSON.parse(String(line)) as Visit }
}

export async function kill(child: ChildProcess): Promise<void> {
  const exit = once(child, 'exit')
  child.kill('SIGKILL')
  await exit
}
