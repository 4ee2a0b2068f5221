import { AnnalsError } from './errors.ts'

/** Refuses what is no object, and names that nobody knows: a misspelt option must not be an option left out. */
export function checkOptions(what: string, options: unknown, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null) {
    throw new AnnalsError('INVALID_ARGUMENT', `the options of ${what} must be an object`, { name: 'options' })
  }
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    const message = `${name} is no option of ${what}; there are ${names.join(', ')}`
    throw new AnnalsError('INVALID_ARGUMENT', message, { name, options: names })
  }
}

export function checkFunction(name: string, value: unknown): void {
  if (typeof value === 'function') return
  throw new AnnalsError('INVALID_ARGUMENT', `${name} must be a function, not ${typeof value}`, { name })
}

export function checkFlag(name: string, value: unknown): void {
  if (value === undefined || typeof value === 'boolean') return
  throw new AnnalsError('INVALID_ARGUMENT', `${name} must be true or false`, { name, value })
}

export function checkSignal(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  throw new AnnalsError('INVALID_ARGUMENT', 'signal must be an AbortSignal', { name: 'signal' })
}

/** A copy without the properties that are undefined. */
export function withoutUndefined<T extends object>(options: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(given) as { [K in keyof T]: Exclude<T[K], undefined> }
}
