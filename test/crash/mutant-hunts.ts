import { fileURLToPath } from 'node:url'
import { type Campaign, MUTANTS, type Mutant } from './mutants.ts'
import { huntPlanted, type Patch, type Score, scoreOf } from './planted-bugs.ts'

/** Hunts bugs that are planted into copies of the built engine, each in a process of its own. */

const hunter = fileURLToPath(new URL('mutant-hunt.mjs', import.meta.url))

interface Hunt {
  readonly campaign: Campaign
  readonly program: number
  readonly images: number
  readonly failure?: string
}

interface HuntOptions {
  /** Determines the random programs. */
  readonly seed: number
  readonly seconds: number
  /** The program to begin with; by default a random one. */
  readonly program?: number
}

/**
 * Hunts all mutants. Each hunt begins with the program that is known to find the bug, or with a random one if `blindly`
 * is set.
 */
export async function huntMutants(options: {
  readonly seed: number
  readonly seconds: number
  readonly blindly: boolean
}): Promise<Score> {
  const { seed, seconds, blindly } = options
  return scoreOf(MUTANTS, async mutant => {
    const { first, program } = mutant
    const known = blindly || program === undefined ? {} : { program }
    const firstHunt = await huntIn(mutant, first, { seed, seconds, ...known })
    if (firstHunt.failure !== undefined) return fateOf(firstHunt)
    // A second hunt with other programs, so that neither chance nor a slow machine decides.
    return fateOf(await huntIn(mutant, first, { seed: seed + 1, seconds }))
  })
}

/** Runs the campaigns on the engine without a planted bug. */
export function huntNothing(seconds: number): Promise<Hunt> {
  return huntIn(undefined, 'crashes', { seed: 1, seconds })
}

/** The patches of a mutant, with paths in dist. */
export function patchesOf({ patches }: Mutant): Patch[] {
  return patches.map(patch => ({
    ...patch,
    file: patch.file.includes('/') ? patch.file : `embedded/${patch.file}`,
  }))
}

function huntIn(mutant: Mutant | undefined, first: Campaign, options: HuntOptions): Promise<Hunt> {
  const { seed, seconds, program = '' } = options
  const patches = mutant === undefined ? [] : patchesOf(mutant)
  return huntPlanted<Hunt>(hunter, patches, [first, program, seed, seconds])
}

function fateOf({ failure, campaign, program, images }: Hunt): string | undefined {
  if (failure === undefined) return undefined
  // The failure, without the program that it occurred in.
  const reason = failure.split(': ').slice(1).join(': ').slice(0, 110)
  return `caught by ${campaign}, program ${program}, after ${images} images: ${reason}`
}
