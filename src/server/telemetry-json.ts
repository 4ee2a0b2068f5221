/** Containers within containers that a value may have. */
const DEPTH_MAX = 64

/** Why this, which was read from JSON, can't be given back as it came; undefined if it can. */
export function jsonProblem(value: unknown, depth = 0): string | undefined {
  if (typeof value === 'string') return value.isWellFormed() ? undefined : 'has a lone surrogate'
  // 1e400 is read as Infinity, and would come back as null.
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : 'has a number that is too large'
  if (typeof value !== 'object' || value === null) return undefined
  if (depth === DEPTH_MAX) return `is nested deeper than ${DEPTH_MAX}`
  for (const [key, member] of Object.entries(value)) {
    const problem = key.isWellFormed() ? jsonProblem(member, depth + 1) : 'has a lone surrogate'
    if (problem !== undefined) return problem
  }
  return undefined
}
