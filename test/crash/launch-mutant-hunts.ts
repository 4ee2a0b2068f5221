import { fileURLToPath } from 'node:url'
import { LAUNCH_MUTANTS, type LaunchHunt, type LaunchMutant } from './launch-mutants.ts'
import { huntPlanted, type Score, scoreOf } from './planted-bugs.ts'

/** Bugs planted into copies of the built launch layer, outbox and registry, and the campaigns that hunt them. */

const hunter = fileURLToPath(new URL('launch-mutant-hunt.mjs', import.meta.url))

interface Hunt {
  readonly seed: number
  readonly images: number
  readonly failure?: string
}

/**
 * Hunts every mutant. It begins with the program that is known to find the mutant, or with a random one if `blindly` is
 * set.
 */
export function huntLaunchMutants(options: {
  /** Determines the random programs. */
  readonly seed: number
  readonly seconds: number
  readonly blindly: boolean
}): Promise<Score> {
  const { seed, seconds, blindly } = options
  return scoreOf(LAUNCH_MUTANTS, async mutant => {
    const first = blindly ? seed : mutant.seed
    return fateOf(mutant, await huntPlanted(hunter, mutant.patches, [mutant.campaign, first, seed, seconds]))
  })
}

/** Runs a campaign on the package without a planted bug. */
export function huntNoLaunchMutant(campaign: LaunchHunt, seconds: number): Promise<Hunt> {
  return huntPlanted(hunter, [], [campaign, 1, 1, seconds])
}

function fateOf({ campaign }: LaunchMutant, { failure, seed, images }: Hunt): string | undefined {
  if (failure === undefined) return undefined
  // The reason without the program and the moment.
  const reason = /(?:N|ND|L)\d+: .*/s.exec(failure)?.[0] ?? failure.split(': ').slice(1).join(': ')
  return `caught by ${campaign}, seed ${seed}, after ${images} images: ${reason.slice(0, 110)}`
}
