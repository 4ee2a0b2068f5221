/** What happens where this machine can't run some of the tests. */

/** Whether every test has to run: with `CI` set, as all services of continuous integration do. A skip there would stay unseen. */
export function mustRunAll(env: NodeJS.ProcessEnv = process.env): boolean {
  const { CI = '' } = env
  return CI !== '' && CI !== '0' && CI.toLowerCase() !== 'false'
}

/** Prints why tests are skipped. Throws instead where every test has to run. */
export function skipBecause(
  reason: string,
  env: NodeJS.ProcessEnv = process.env,
  print: (line: string) => void = console.error,
): void {
  if (mustRunAll(env)) throw new Error(`${reason}. CI is set, so no test may be skipped`)
  print(`SKIPPED: ${reason}`)
}
