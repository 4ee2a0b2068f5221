/** Skipping of tests that this machine can't run. */

/** Whether every test must run, because `CI` is set, as CI services do. A skip would go unnoticed there. */
export function mustRunAll(env: NodeJS.ProcessEnv = process.env): boolean {
  const { CI = '' } = env
  return CI !== '' && CI !== '0' && CI.toLowerCase() !== 'false'
}

/** Prints why tests are skipped. Throws instead if every test must run. */
export function skipBecause(
  reason: string,
  env: NodeJS.ProcessEnv = process.env,
  print: (line: string) => void = console.error,
): void {
  if (mustRunAll(env)) throw new Error(`${reason}. CI is set, so no test may be skipped`)
  print(`SKIPPED: ${reason}`)
}
