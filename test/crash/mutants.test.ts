import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { type Campaign, MUTANTS, type Mutant } from './mutants.ts'

/**
 * A test of the tests: bugs planted into a copy of the built engine, each of
 * which the campaigns must find. If one survives, a campaign is too weak.
 */
const root = fileURLToPath(new URL('../..', import.meta.url))
const hunter = fileURLToPath(new URL('mutant-hunt.mjs', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'annals-mutants-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const HUNTERS = 2
const HUNT_SECONDS = 20
const SOUND_SECONDS = 5

interface Hunt {
  readonly campaign: Campaign
  readonly images: number
  readonly failure?: string
}

function copyEngine(name: string): string {
  const copy = join(folder, name)
  for (const part of ['core', 'engine', 'embedded', 'testing']) {
    cpSync(join(root, 'dist', part), join(copy, part), { recursive: true })
  }
  writeFileSync(join(copy, 'package.json'), '{"type":"module"}')
  return copy
}

function plant({ patches }: Mutant, copy: string): void {
  for (const { file, find, replace } of patches) {
    const path = join(copy, 'embedded', file)
    const text = readFileSync(path, 'utf8')
    const pattern = find.trim().split(/\s+/).map(escapePattern).join('\\s*')
    const found = [...text.matchAll(new RegExp(pattern, 'g'))]
    if (found.length !== 1)
      throw new Error(`${file} has ${JSON.stringify(find)} ${found.length} times: update the mutant`)
    writeFileSync(
      path,
      text.replace(found[0][0], () => replace),
    )
  }
}

async function hunt(copy: string, first: Campaign, seconds: number): Promise<Hunt> {
  const { stdout } = await promisify(execFile)(process.execPath, [hunter, copy, first, String(seconds)])
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Hunt
}

/** What the failure was, without which program it was in. */
function reasonOf(failure: string): string {
  const parts = failure.split(': ')
  return parts.slice(1).join(': ').slice(0, 110)
}

test('the engine without a planted bug passes', { timeout: 60_000 }, async () => {
  expect(existsSync(join(root, 'dist', 'embedded')), 'the engine is built').toBe(true)
  const found = await hunt(copyEngine('sound'), 'crashes', SOUND_SECONDS)
  expect(found.failure).toBeUndefined()
})

test(`each of ${MUTANTS.length} planted bugs is caught`, { timeout: 300_000 }, async () => {
  const lines: string[] = []
  const survivors: string[] = []
  const waiting = [...MUTANTS.entries()]
  const hunters = Array.from({ length: HUNTERS }, async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [index, mutant] = next
      const copy = copyEngine(String(index))
      plant(mutant, copy)
      const start = performance.now()
      const { failure, campaign, images } = await hunt(copy, mutant.first, HUNT_SECONDS)
      const seconds = ((performance.now() - start) / 1000).toFixed(1)
      if (failure === undefined) survivors.push(mutant.name)
      const fate =
        failure === undefined
          ? 'SURVIVED'
          : `caught by ${campaign} after ${images} images: ${reasonOf(failure)}`
      lines.push(`${mutant.name} → ${fate} (${seconds} s)`)
      rmSync(copy, { recursive: true, force: true })
    }
  })
  await Promise.all(hunters)
  console.log(`${lines.join('\n')}\nscore: ${MUTANTS.length - survivors.length} of ${MUTANTS.length}`)
  expect(survivors).toEqual([])
})

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')
}
