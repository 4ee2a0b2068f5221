/** What is left out is left out. */
export function without<T extends object>(options: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(given) as { [K in keyof T]: Exclude<T[K], undefined> }
}
