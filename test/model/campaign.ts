import { type Counts, newCounts } from './counts.ts'
import { generateProgram } from './generator.ts'
import { runProgram } from './runner.ts'
import { type Program, showProgram } from './steps.ts'

/** Reports a failing program, shortened as far as possible. */
export class FailedProgram extends Error {}

/** Runs one program per seed, beginning with `firstSeed`. Shortens and reports the first program that fails. */
export async function campaign(
  firstSeed: number,
  programs: number,
  progress?: (counts: Counts) => void,
): Promise<Counts> {
  const counts = newCounts()
  for (let i = 0; i < programs; i++) {
    const seed = (firstSeed + i) >>> 0
    const program = generateProgram(seed)
    const failure = await failureOf(program, counts)
    if (failure !== undefined) await tell(program, failure)
    progress?.(counts)
  }
  return counts
}

/** The message of the program's failure; undefined if it passes. */
export async function failureOf(program: Program, counts?: Counts): Promise<string | undefined> {
  try {
    await runProgram(program, counts)
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

async function tell(program: Program, failure: string): Promise<never> {
  const short = await shrink(program)
  const message = (await failureOf(short)) ?? failure
  throw new FailedProgram(`ANNALS_SEED=${program.seed}: ${message}\n${showProgram(short)}`)
}

/** Removes steps, many at a time and then one by one, and calls of steps, as long as the program still fails. */
async function shrink(program: Program): Promise<Program> {
  let best = program
  for (let size = Math.ceil(best.steps.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = best.steps.length - size; at > -size; at -= size) {
      const without = { ...best, steps: best.steps.toSpliced(Math.max(0, at), size) }
      if ((await failureOf(without)) !== undefined) best = without
    }
  }
  for (let i = 0; i < best.steps.length; i++) {
    const step = best.steps[i]
    if (!('calls' in step)) continue
    for (let at = step.calls.length - 1; at >= 0; at--) {
      const current = best.steps[i] as typeof step
      const shorter = { ...current, calls: current.calls.toSpliced(at, 1) } as typeof step
      const without = { ...best, steps: best.steps.with(i, shorter) }
      if ((await failureOf(without)) !== undefined) best = without
    }
  }
  return best
}
