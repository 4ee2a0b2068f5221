import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import { open } from '../../src/annals.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { rounds } from '../rounds.ts'
import { PrimitivesOracle } from './primitives-oracle.ts'

const WRITER = fileURLToPath(new URL('primitives-writer.mjs', import.meta.url))
const STORES = rounds(3, 20)
const DEATHS = 9
/** The test kills a writer after at most this many answers. */
const ANSWERS_MAX = 150
/** Or the writer kills itself at one of its first disk calls, up to this number. */
const CALLS_MAX = 700

const root = mkdtempSync(join(tmpdir(), 'annals-primitives-'))
const children = new Set<ChildProcess>()
afterAll(() => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(root, { recursive: true, force: true })
})

/** Runs a writer until it is killed. */
async function die(args: readonly string[], answersMax: number): Promise<void> {
  const child = spawn(process.execPath, [WRITER, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  children.add(child)
  let answers = 0
  createInterface({ input: child.stdout }).on('line', () => {
    if (++answers === answersMax) child.kill('SIGKILL')
  })
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
  children.delete(child)
  expect({ code, signal }).toEqual({ code: null, signal: 'SIGKILL' })
}

test(`nothing acknowledged is lost and every transaction is atomic over ${STORES * DEATHS} writers killed with SIGKILL`, {
  timeout: 600_000,
}, async () => {
  const seed = seedOfRun()
  const random = new Random(seed)
  const started = performance.now()
  const total: Record<string, number> = {}
  let kills = 0
  for (let store = 0; store < STORES; store++) {
    const folder = join(root, `store-${store}`)
    const oracle = new PrimitivesOracle()
    let runs: string[] = []
    for (let death = 0; death < DEATHS; death++) {
      const report = join(root, `report-${store}-${death}`)
      const byItself = random.chance(0.5)
      const settings = {
        seed: random.below(2 ** 32),
        first: oracle.next,
        durability: random.chance(0.5) ? 'durable' : 'relaxed',
        // The first calls open the store and create the data that all writers need.
        ...(byItself ? { dieAtCall: 1 + random.below(CALLS_MAX) } : {}),
        runs,
      }
      try {
        await die(
          [folder, report, JSON.stringify(settings)],
          byItself ? Number.POSITIVE_INFINITY : 1 + random.below(ANSWERS_MAX),
        )
        kills++
        oracle.takeIn(report)
        const db = await open({ path: folder, verifyOnOpen: true })
        runs = await oracle.check(db)
        await db.close()
      } catch (error) {
        throw new Error(`ANNALS_SEED=${seed}, store ${store}, death ${death}: ${String(error)}`, {
          cause: error,
        })
      }
    }
    for (const [name, count] of Object.entries(oracle.counts)) total[name] = (total[name] ?? 0) + count
  }
  console.log(
    `primitives: seed ${seed}: ${kills} writers killed, ${JSON.stringify(total)}, ${Math.round(performance.now() - started)} ms`,
  )
  expect(kills).toBe(STORES * DEATHS)
  expect(Object.entries(total).filter(([, count]) => count === 0)).toEqual([])
})
