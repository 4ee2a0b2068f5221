import { fileURLToPath } from 'node:url'
import { type Campaign, MUTANTS, type Mutant } from './mutants.ts'
import { huntPlanted, type Score, scoreOf } from './planted-bugs.ts'

/** Bugs planted into copies of the built engine, and the campaigns that hunt them, each hunt in a process of its own. */

const hunter = fileURLToPath(new URL('mutant-hunt.mjs', import.meta.url))

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

/** Hunts all mutants, beginning with the program that is known to find each, or blindly. */
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
    // A second hunt with other programs: neither chance nor a slow machine shall decide.
    return fateOf(await huntIn(mutant, first, { seed: seed + 1, seconds }))
  })
}

/** The engine as it was built. */
export function huntNothing(seconds: number): Promise<Hunt> {
  return huntIn(undefined, 'crashes', { seed: 1, seconds })
}

function huntIn(mutant: Mutant | undefined, first: Campaign, options: HuntOptions): Promise<Hunt> {
  const { seed, seconds, program = '' } = options
  const patches = (mutant?.patches ?? []).map(patch => ({
    ...patch,
    file: patch.file.includes('/') ? patch.file : `embedded/${patch.file}`,
  }))
  return huntPlanted<Hunt>(hunter, patches, [first, program, seed, seconds])
}

function fateOf({ failure, campaign, program, images }: Hunt): string | undefined {
  if (failure === undefined) return undefined
  // What it was, without which program it was in.
  const reason = failure.split(': ').slice(1).join(': ').slice(0, 110)
  return `caught by ${campaign}, program ${program}, after ${images} images: ${reason}`
}
