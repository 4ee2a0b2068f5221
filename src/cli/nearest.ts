/** The known names that the user probably meant, nearest first. */
export function nearest(typed: string, known: Iterable<string>, count = 3): readonly string[] {
  const wanted = typed.toLowerCase()
  const tolerated = Math.max(2, Math.floor(typed.length / 3))
  const scored: { readonly name: string; readonly distance: number }[] = []
  for (const name of known) {
    const given = name.toLowerCase()
    // Users often type only the beginning of an id, or copy a part of it.
    const distance =
      wanted.length > 1 && given.startsWith(wanted) ? 0 : editDistance(wanted, given, tolerated)
    if (distance <= tolerated) scored.push({ name, distance })
  }
  scored.sort((a, b) => a.distance - b.distance || (a.name < b.name ? -1 : 1))
  return scored.slice(0, count).map(({ name }) => name)
}

/**
 * The number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`. Returns `max + 1` at once
 * if the lengths alone differ by more than `max`.
 */
function editDistance(a: string, b: string, max: number = Number.POSITIVE_INFINITY): number {
  if (Math.abs(a.length - b.length) > max) return max + 1
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = last[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)
      let best = Math.min(replaced, last[j] + 1, row[j - 1] + 1)
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (isSwapped) best = Math.min(best, beforeLast[j - 2] + 1)
      row.push(best)
    }
    beforeLast = last
    last = row
  }
  return last[b.length]
}
