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

/** Plants bugs into copies of the built package, and hunts each in a process of its own. */

const HUNTERS = 2
const dist = fileURLToPath(new URL('../../dist', import.meta.url))
const programs = fileURLToPath(new URL('../../temp/programs/test', import.meta.url))
/** The parts of the package that a campaign imports, without those that no campaign reaches. */
const PARTS = ['core', 'disk', 'embedded', 'engine', 'launch', 'ledger', 'primitives', 'telemetry', 'testing']

export interface Patch {
  /** The path in dist. */
  readonly file: string
  /** The text to replace, which must occur exactly once. White space matches any white space. */
  readonly find: string
  readonly replace: string
}

export interface Score {
  readonly hunted: number
  readonly caught: number
  readonly survivors: readonly string[]
  /** One line per bug: the campaign that caught it, the time it took, and the failure. */
  readonly table: string
}

/** Hunts each mutant, two at a time. `hunt` returns how it was caught, or undefined if it survived. */
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

/** Runs a program on a copy with these patches, whose folder is its first argument. Returns the JSON of its last line. */
export async function huntPlanted<T>(
  program: string,
  patches: readonly Patch[],
  args: readonly unknown[],
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'annals-mutant-'))
  try {
    linkPackage(folder, patches)
    for (const patch of patches) plant(patch, folder)
    // With this flag a link is a module of its own, so the copy imports itself and not the package behind its links.
    const all = ['--preserve-symlinks', program, folder, ...args].map(String)
    const { stdout } = await promisify(execFile)(process.execPath, all)
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as T
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/**
 * Links the built package as `src` and the compiled campaigns as `test`. A part that gets a patch is linked file by file,
 * so that one of them can be replaced.
 */
function linkPackage(folder: string, patches: readonly Patch[]): void {
  mkdirSync(join(folder, 'src'))
  for (const part of PARTS) {
    const to = join(folder, 'src', part)
    if (patches.some(({ file }) => file.startsWith(`${part}/`))) linkFiles(join(dist, part), to)
    else symlinkSync(join(dist, part), to)
  }
  symlinkSync(programs, join(folder, 'test'))
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
}

function linkFiles(from: string, to: string): void {
  for (const name of readdirSync(from, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.js')) continue
    mkdirSync(dirname(join(to, name)), { recursive: true })
    symlinkSync(join(from, name), join(to, name))
  }
}

/** Lists the patches that are out of date, because the built code does not have their text exactly once. */
export function misfits(patches: readonly Patch[]): string[] {
  return patches.flatMap(patch => {
    const count = textsFound(patch, readFileSync(join(dist, patch.file), 'utf8')).length
    return count === 1 ? [] : [`${patch.file} has ${JSON.stringify(patch.find)} ${count} times`]
  })
}

function textsFound({ find }: Patch, text: string): string[] {
  const pattern = find.trim().split(/\s+/).map(escapePattern).join('\\s*')
  return [...text.matchAll(new RegExp(pattern, 'g'))].map(([found]) => found)
}

function plant(patch: Patch, folder: string): void {
  const path = join(folder, 'src', patch.file)
  const text = readFileSync(path, 'utf8')
  const found = textsFound(patch, text)
  if (found.length !== 1) throw new Error(`${misfits([patch])}: update the mutant`)
  // Replaces the link. Writing through it would change the package.
  rmSync(path)
  writeFileSync(
    path,
    text.replace(found[0], () => patch.replace),
  )
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')
}
