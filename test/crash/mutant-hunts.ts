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
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type Campaign, MUTANTS, type Mutant } from './mutants.ts'

/** Bugs planted into copies of the built engine, and the campaigns that hunt them, each hunt in a process of its own. */

const dist = fileURLToPath(new URL('../../dist', import.meta.url))
const hunter = fileURLToPath(new URL('mutant-hunt.mjs', import.meta.url))

const HUNTERS = 2

interface Hunt {
  readonly campaign: Campaign
  readonly program: number
  readonly images: number
  readonly failure?: string
}

interface HuntOptions {
  /** What the random programs follow from. */
  readonly seed: number
  readonly seconds: number
  /** Without it the hunt knows only which campaign to begin with. */
  readonly program?: number
}

export interface Score {
  readonly hunted: number
  readonly caught: number
  readonly survivors: readonly string[]
  /** One line for each: who caught it, after how long, and by what. */
  readonly table: string
}

/** Hunts mutants: those that are not rare, beginning with the program that is known to find each; or all of them, blindly. */
export async function huntMutants(options: {
  readonly seed: number
  readonly seconds: number
  readonly blindly: boolean
}): Promise<Score> {
  const { seed, seconds, blindly } = options
  const lines: string[] = []
  const survivors: string[] = []
  const hunted = blindly ? MUTANTS : MUTANTS.filter(({ isRare }) => isRare !== true)
  const waiting = [...hunted]
  const hunters = Array.from({ length: HUNTERS }, async () => {
    for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
      const { name, first, program } = mutant
      const start = performance.now()
      const known = blindly || program === undefined ? {} : { program }
      const firstHunt = await huntIn(mutant, first, { seed, seconds, ...known })
      // A second hunt with other programs: neither chance nor a slow machine shall decide.
      const found =
        firstHunt.failure === undefined ? await huntIn(mutant, first, { seed: seed + 1, seconds }) : firstHunt
      const took = ((performance.now() - start) / 1000).toFixed(1)
      if (found.failure === undefined) survivors.push(name)
      lines.push(`${name} → ${fateOf(found)} (${took} s)`)
    }
  })
  await Promise.all(hunters)
  return {
    hunted: hunted.length,
    caught: hunted.length - survivors.length,
    survivors,
    table: lines.join('\n'),
  }
}

/** The engine as it was built. */
export function huntNothing(seconds: number): Promise<Hunt> {
  return huntIn(undefined, 'crashes', { seed: 1, seconds })
}

async function huntIn(mutant: Mutant | undefined, first: Campaign, options: HuntOptions): Promise<Hunt> {
  const folder = mkdtempSync(join(tmpdir(), 'annals-mutant-'))
  try {
    linkEngine(folder)
    if (mutant !== undefined) plant(mutant, folder)
    const { seed, seconds, program = '' } = options
    // A link is a module of its own: so the copy imports itself, not the engine that it was made from.
    const args = ['--preserve-symlinks', hunter, folder, first, program, seed, seconds].map(String)
    const { stdout } = await promisify(execFile)(process.execPath, args)
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Hunt
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Links every file of its own, so that one of them can be replaced. */
function linkEngine(folder: string): void {
  for (const part of ['core', 'disk', 'embedded', 'engine', 'testing']) {
    mkdirSync(join(folder, part))
    for (const entry of readdirSync(join(dist, part), { withFileTypes: true })) {
      // Suites are folders: no campaign needs them.
      if (entry.isFile() && entry.name.endsWith('.js'))
        symlinkSync(join(dist, part, entry.name), join(folder, part, entry.name))
    }
  }
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
}

function plant({ patches }: Mutant, folder: string): void {
  for (const { file, find, replace } of patches) {
    const path = join(folder, file.includes('/') ? file : join('embedded', file))
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
}

function fateOf({ failure, campaign, program, images }: Hunt): string {
  if (failure === undefined) return 'SURVIVED'
  // What it was, without which program it was in.
  const reason = failure.split(': ').slice(1).join(': ').slice(0, 110)
  return `caught by ${campaign}, program ${program}, after ${images} images: ${reason}`
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')
}
