import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { openNodeDisk } from '../../src/disk/node-disk.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import type { Recovery } from '../../src/engine/capabilities.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { rounds } from '../rounds.ts'
import { KillOracle, readReport } from './kill-oracle.ts'

/**
 * Failure matrix: "process killed at any operation, also during recovery, checkpoint, rotation" and "duplicate append,
 * any timing", with a real process, a real disk and a real SIGKILL.
 */
const WRITER = fileURLToPath(new URL('writer.mjs', import.meta.url))
/** Even, so that every kind of kill hits durable and relaxed writers. */
const STORES = rounds(4, 50)
/** The kills of each store, in order. The first writer creates the store. */
const DEATHS = [
  'writing',
  'opening',
  'writing',
  'closing',
  'opening, at a disk call',
  'writing',
  'closing, at a disk call',
  'opening',
  'writing',
  'opening, at a disk call',
] as const
const KILL_AFTER_MS_MAX = 150

type Death = (typeof DEATHS)[number]

const root = mkdtempSync(join(tmpdir(), 'annals-kill-'))
const children = new Set<ChildProcess>()
afterAll(() => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(root, { recursive: true, force: true })
})

interface Writer {
  readonly process: ChildProcess
  /** Resolves when the writer has printed the word or has ended. */
  heard(word: string): Promise<void>
  said(word: string): boolean
  readonly ended: Promise<NodeJS.Signals | null>
}

function startWriter(folder: string, report: string, settings: Record<string, unknown>): Writer {
  const child = spawn(process.execPath, [WRITER, folder, report, JSON.stringify(settings)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.add(child)
  const words = new Set<string>()
  const waiting: (() => void)[] = []
  const wake = (): void => {
    for (const resume of waiting.splice(0)) resume()
  }
  let over = false
  createInterface({ input: child.stdout! }).on('line', line => {
    words.add(line)
    wake()
  })
  const ended = once(child, 'exit').then(([code, signal]: (number | NodeJS.Signals | null)[]) => {
    children.delete(child)
    over = true
    wake()
    if (signal === null && code !== 0) throw new Error(`the writer failed with ${code}`)
    return signal as NodeJS.Signals | null
  })
  // Callers that await `ended` get a failure. Without them it must not be an unhandled rejection.
  ended.catch(() => undefined)
  const heard = async (word: string): Promise<void> => {
    while (!words.has(word) && !over) await new Promise<void>(resolve => waiting.push(resolve))
  }
  return { process: child, heard, said: word => words.has(word), ended }
}

/** Runs one writer until it is killed in the way that `death` says. Returns the phase in which it was killed. */
async function die(
  folder: string,
  report: string,
  death: Death,
  random: Random,
  durability: string,
): Promise<Death | undefined> {
  const settings: Record<string, unknown> = { seed: random.below(2 ** 32), durability }
  if (death.startsWith('closing')) settings['closeAfter'] = random.below(20)
  if (death.endsWith('at a disk call')) {
    settings['dieWhile'] = death.startsWith('closing') ? 'close' : 'open'
    settings['dieAtCall'] = 1 + random.below(death.startsWith('closing') ? 60 : 40)
  }
  const writer = startWriter(folder, report, settings)
  if (death === 'writing') await writer.heard('committed').then(() => sleep(random.below(KILL_AFTER_MS_MAX)))
  else if (death === 'opening') await writer.heard('opening').then(() => sleep(random.below(30)))
  else if (death === 'closing') await writer.heard('closing').then(() => sleep(random.below(8)))
  // The writer may have made too few disk calls to kill itself, so it is killed after its first commit.
  else if (death.startsWith('opening')) await writer.heard('committed')
  else await writer.ended
  writer.process.kill('SIGKILL')
  if ((await writer.ended) !== 'SIGKILL') return undefined
  // A writer that had opened the store was killed while it was writing.
  return death.startsWith('opening') && writer.said('opened') ? 'writing' : death
}

/** Checks the store read-only, so that the next writer has to recover it. */
async function check(oracle: KillOracle, folder: string, report: string): Promise<Recovery | undefined> {
  const disk = openNodeDisk(folder, { readOnly: true })
  const store = await openEmbedded({ disk, readOnly: true, warn: () => undefined })
  oracle.takeIn(readReport(report), store.stats().version)
  await oracle.check(store)
  await store.close()
  return store.recovery
}

describe('failure matrix, process killed', () => {
  it(`nothing acknowledged is lost over ${STORES * DEATHS.length} writers killed with SIGKILL`, async () => {
    const seed = seedOfRun()
    const random = new Random(seed)
    const started = performance.now()
    const killed = new Map<Death, number>()
    const mended = { tornTails: 0, damagedManifests: 0, strayBytes: 0 }
    let commits = 0
    let answered = 0
    let duplicates = 0
    let drops = 0
    for (let each = 0; each < STORES; each++) {
      const folder = join(root, `store-${each}`)
      const oracle = new KillOracle()
      for (const [index, death] of DEATHS.entries()) {
        const report = join(root, `report-${each}-${index}`)
        const durability = (each + index) % 2 === 0 ? 'durable' : 'relaxed'
        try {
          const died = await die(folder, report, death, random, durability)
          if (died !== undefined) killed.set(died, (killed.get(died) ?? 0) + 1)
          const recovery = await check(oracle, folder, report)
          if (recovery?.tornTail !== undefined) mended.tornTails++
          mended.damagedManifests += recovery?.damagedManifests.length ?? 0
          mended.strayBytes += recovery?.strayBytes.length ?? 0
        } catch (error) {
          throw new Error(`seed ${seed}, store ${each}, ${durability}, killed while ${death}`, {
            cause: error,
          })
        }
      }
      // The first check recovers the store and closes it, the second one opens it again.
      await finalCheck(oracle, folder)
      await finalCheck(oracle, folder)
      commits += oracle.commits
      answered += oracle.answered
      duplicates += oracle.duplicates
      drops += oracle.drops
      rmSync(folder, { recursive: true })
    }
    const kills = [...killed.values()].reduce((a, b) => a + b, 0)
    console.log(
      `seed ${seed}: ${kills} writers killed (${[...killed].map(([death, n]) => `${n} ${death}`).join(', ')}), ` +
        `${commits} commits found, ${answered} answered, 0 lost, ${duplicates} duplicates answered alike, ${drops} drops, ` +
        `mended ${JSON.stringify(mended)}, ${Math.round(performance.now() - started)} ms`,
    )
    expect(kills).toBeGreaterThanOrEqual(STORES * DEATHS.length * 0.9)
    expect(answered).toBeGreaterThan(STORES * 100)
    expect(drops).toBeGreaterThan(STORES)
  }, 600_000)
})

async function finalCheck(oracle: KillOracle, folder: string): Promise<void> {
  const store = await openEmbedded({ disk: openNodeDisk(folder), warn: () => undefined })
  await oracle.check(store)
  await store.close()
}
