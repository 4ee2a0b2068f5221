import { execFile } from 'node:child_process'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

/** Bugs planted into copies of the built package, each hunted in a process of its own. */

const HUNTERS = 2
const dist = fileURLToPath(new URL('../../dist', import.meta.url))
const programs = fileURLToPath(new URL('../../temp/programs/test', import.meta.url))
/** The parts of the package that a campaign imports, without those that no campaign reaches. */
const PARTS = ['core', 'disk', 'embedded', 'engine', 'launch', 'ledger', 'primitives', 'telemetry', 'testing']

export interface Patch {
  /** In dist. */
  readonly file: string
  /** White space stands for any white space. It must be there exactly once, or the patch is out of date. */
  readonly find: string
  readonly replace: string
}

export interface Score {
  readonly hunted: number
  readonly caught: number
  readonly survivors: readonly string[]
  /** One line for each: who caught it, after how long, and by what. */
  readonly table: string
}

/** Hunts each mutant, two at a time. `hunt` says how it was caught; undefined if it survived. */
export async function scoreOf<M extends { readonly name: string }>(
  mutants: readonly M[],
  hunt: (mutant: M) => Promise<string | undefined>,
): Promise<Score> {
  const lines: string[] = []
  const survivors: string[] = []
  const waiting = [...mutants]
  const hunters = Array.from({ length: HUNTERS }, async () => {
    for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
      const start = performance.now()
      const fate = await hunt(mutant)
      const took = ((performance.now() - start) / 1000).toFixed(1)
      if (fate === undefined) survivors.push(mutant.name)
      lines.push(`${mutant.name} → ${fate ?? 'SURVIVED'} (${took} s)`)
    }
  })
  await Promise.all(hunters)
  const hunted = mutants.length
  return { hunted, caught: hunted - survivors.length, survivors, table: lines.join('\n') }
}

/** Runs a program that hunts in a copy with these patches. Returns the JSON of its last line. Its first argument is the copy. */
export async function huntPlanted<T>(
  program: string,
  patches: readonly Patch[],
  args: readonly unknown[],
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'annals-mutant-'))
  try {
    linkPackage(folder)
    for (const patch of patches) plant(patch, folder)
    // A link is a module of its own: so the copy imports itself, not the package that it was made from.
    const all = ['--preserve-symlinks', program, folder, ...args].map(String)
    const { stdout } = await promisify(execFile)(process.execPath, all)
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as T
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Links the built package as `src` and the compiled campaigns as `test`, file by file, so that one file can be replaced. */
function linkPackage(folder: string): void {
  for (const part of PARTS) linkFiles(join(dist, part), join(folder, 'src', part))
  linkFiles(programs, join(folder, 'test'))
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
}

function linkFiles(from: string, to: string): void {
  for (const name of readdirSync(from, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.js')) continue
    mkdirSync(dirname(join(to, name)), { recursive: true })
    symlinkSync(join(from, name), join(to, name))
  }
}

function plant({ file, find, replace }: Patch, folder: string): void {
  const path = join(folder, 'src', file)
  const text = readFileSync(path, 'utf8')
  const pattern = find.trim().split(/\s+/).map(escapePattern).join('\\s*')
  const found = [...text.matchAll(new RegExp(pattern, 'g'))]
  if (found.length !== 1)
    throw new Error(`${file} has ${JSON.stringify(find)} ${found.length} times: update the mutant`)
  // In place of the link, not through it.
  rmSync(path)
  writeFileSync(
    path,
    text.replace(found[0][0], () => replace),
  )
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')
}
