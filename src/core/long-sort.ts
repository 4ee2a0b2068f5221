/** The most keys that are sorted without a pause. */
const KEYS_AT_ONCE = 4096

/** Sorts by UTF-16 code units, with pauses: sorts short runs, then merges them. */
export function* sorted(keys: string[]): Generator<void, readonly string[], void> {
  if (keys.length <= KEYS_AT_ONCE) return keys.sort()
  let runs: string[][] = []
  for (let at = 0; at < keys.length; at += KEYS_AT_ONCE) {
    runs.push(keys.slice(at, at + KEYS_AT_ONCE).sort())
    yield
  }
  while (runs.length > 1) {
    const longer: string[][] = []
    for (let i = 0; i < runs.length; i += 2) {
      longer.push(i + 1 < runs.length ? yield* merged(runs[i], runs[i + 1]) : runs[i])
    }
    runs = longer
  }
  return runs[0]
}

function* merged(one: readonly string[], other: readonly string[]): Generator<void, string[], void> {
  const all: string[] = []
  for (let i = 0, j = 0; i < one.length || j < other.length; ) {
    const isOne = j === other.length || (i < one.length && one[i] < other[j])
    if (all.push(isOne ? one[i++] : other[j++]) % KEYS_AT_ONCE === 0) yield
  }
  return all
}
