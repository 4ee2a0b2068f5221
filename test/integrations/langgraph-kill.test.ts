import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { CheckpointTuple } from '@langchain/langgraph-checkpoint'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { open } from '../../src/index.ts'
import { AnnalsSaver } from '../../src/integrations/langgraph.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { rounds } from '../rounds.ts'

/** Kills a real process in the middle of graphs, again and again on one thread, and checks the thread afterwards. */

const PROGRAM = fileURLToPath(new URL('langgraph-process.mjs', import.meta.url))
const KILLS = rounds(20, 200)
/** How many lines the process prints in a turn: six steps and parts, and the end of the turn. */
const LINES_A_TURN = 7

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'annals-langgraph-kill-'))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

interface Ended {
  readonly lines: readonly string[]
  readonly signal: string | null
  readonly code: number | null
}

/** Runs the process, and kills it some time after its nth line. */
async function run(
  turns: number,
  kill?: { readonly line: number; readonly delayMs: number },
): Promise<Ended> {
  const child = spawn(process.execPath, [PROGRAM, folder, String(turns)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exit = once(child, 'exit')
  const lines: string[] = []
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line)
    if (lines.length === kill?.line) setTimeout(() => child.kill('SIGKILL'), kill.delayMs)
  }
  const [code, signal] = await exit
  return { lines, code, signal }
}

test(`a thread whose process is killed ${KILLS} times has exactly the right steps`, async () => {
  const seed = seedOfRun()
  console.log(`kills of a graph: ANNALS_SEED=${seed}`)
  const random = new Random(seed)
  const finished = new Set<string>()
  let killed = 0
  let turns = 0
  while (killed < KILLS) {
    turns += 3
    const kill = { line: 1 + random.below(2 * LINES_A_TURN), delayMs: random.below(8) }
    const { lines, signal, code } = await run(turns, kill)
    if (signal === 'SIGKILL') killed++
    else expect(code).toBe(0)
    checkRepeated(lines, finished)
  }
  expect(await run(turns)).toMatchObject({ code: 0 })
  await checkThread(turns)
}, 1_800_000)

/** A turn that was finished is never run again. */
function checkRepeated(lines: readonly string[], finished: Set<string>): void {
  for (const line of lines) {
    const [kind, name] = line.split(' ')
    if (kind === 'turn') finished.add(name)
    else if (kind !== 'end') expect(finished.has(name.split('.')[0]), line).toBe(false)
  }
}

/** The thread has each step of each turn once, in order, and every checkpoint in its history is whole. */
async function checkThread(turns: number): Promise<void> {
  const db = await open({ path: folder, verifyOnOpen: true })
  try {
    const saver = new AnnalsSaver(db)
    const config = { configurable: { thread_id: 'thread', checkpoint_ns: '' } }
    const newest = await saver.getTuple(config)
    const all = Array.from({ length: turns }, (_, turn) => turn)
    expect(newest?.checkpoint.channel_values).toMatchObject({
      turn: turns - 1,
      steps: all.flatMap(turn => ['first', 'second', 'last'].map(name => `${turn}.${name}`)),
      parts: all.flatMap(turn => [0, 1, 2].map(number => `${turn}.${number}`)),
    })
    const history: CheckpointTuple[] = []
    for await (const tuple of saver.list(config)) history.push(tuple)
    // Each turn has a checkpoint of its input, one that starts it, and one after each of its four steps.
    expect(history).toHaveLength(turns * 6)
    for (const [i, tuple] of history.entries()) {
      const parent = tuple.parentConfig?.configurable?.['checkpoint_id']
      expect(parent).toBe(history[i + 1]?.checkpoint.id)
      const { steps, parts } = tuple.checkpoint.channel_values as { steps?: string[]; parts?: string[] }
      expect(new Set(steps).size).toBe(steps?.length ?? 0)
      expect(new Set(parts).size).toBe(parts?.length ?? 0)
    }
    const inputs: CheckpointTuple[] = []
    for await (const tuple of saver.list(config, { filter: { source: 'input' } })) inputs.push(tuple)
    expect(inputs).toHaveLength(turns)
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  } finally {
    await db.close()
  }
}
