import { AnnalsError, invalidArgument } from './errors.ts'

/** Checks that options are an object with known names only, so that a misspelt option is not silently ignored. */
export function checkOptions(what: string, options: unknown, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null) {
    throw new AnnalsError('INVALID_ARGUMENT', `the options of ${what} must be an object`, { name: 'options' })
  }
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    const message = `${what} has no option ${name}; the options are: ${names.join(', ')}`
    throw new AnnalsError('INVALID_ARGUMENT', message, { name, options: names })
  }
}

/** Checks that a callback is a function. */
export function checkFunction(name: string, value: unknown): void {
  if (typeof value === 'function') return
  throw invalidArgument(name, `must be a function, not ${typeof value}`)
}

/** Checks an optional boolean. */
export function checkFlag(name: string, value: unknown): void {
  if (value === undefined || typeof value === 'boolean') return
  throw invalidArgument(name, 'must be true or false', value)
}

/** Checks an optional `AbortSignal`. */
export function checkSignal(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  throw invalidArgument('signal', 'must be an AbortSignal')
}

/** A copy without the properties that are undefined. */
export function withoutUndefined<T extends object>(options: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(given) as { [K in keyof T]: Exclude<T[K], undefined> }
}
