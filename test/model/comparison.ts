import { VersionOf } from './kv-model.ts'
import { show } from './steps.ts'
import type { Outcome, World } from './world.ts'

/** The difference between an expected and an actual result; undefined if there is none. */
export function disagreement(expected: Outcome, actual: Outcome, world: World): string | undefined {
  const wanted = 'value' in expected ? { value: withVersion(expected.value, actual, world) } : expected
  return isEqual(wanted, actual) ? undefined : `expected ${show(wanted)}, got ${show(actual)}`
}

/** An object of the API has one of these members, and no value of a program has. The order of its members means nothing. */
const API_MEMBERS: readonly string[] = [
  'error',
  'event',
  'initial',
  'isValid',
  'runId',
  'sequence',
  'state',
  'total',
  'trace',
  'value',
  'version',
]

/**
 * Whether two results are equal. The members of values must be in the same order (P29). Comparing directly is faster than
 * comparing texts, because the values are almost always equal.
 */
function isEqual(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false
  if (Array.isArray(a) !== Array.isArray(b) || a instanceof Uint8Array !== b instanceof Uint8Array)
    return false
  const keys = Object.keys(a)
  const others = Object.keys(b)
  if (keys.length !== others.length) return false
  const isOrdered = !API_MEMBERS.some(member => Object.hasOwn(a, member))
  for (const [i, key] of keys.entries()) {
    if (isOrdered ? others[i] !== key : !Object.hasOwn(b, key)) return false
    if (!isEqual((a as Record<string, unknown>)[key], (b as Record<string, unknown>)[key])) return false
  }
  return true
}

/**
 * Replaces the stamp of an expected version with the actual version, if the order of versions matches that of all
 * commits seen before.
 */
function withVersion(value: unknown, actual: Outcome, world: World): unknown {
  if (value instanceof VersionOf) {
    const given = 'value' in actual ? { value: { version: actual.value } } : actual
    return (withVersion({ version: value }, given, world) as { version: unknown }).version
  }
  if (typeof value !== 'object' || value === null || !('version' in value)) return value
  const { versions } = world
  const { version } = value
  if (!(version instanceof VersionOf)) return value
  const { stamp } = version
  if (stamp === 0) return { ...value, version: 0 }
  const given = 'value' in actual ? (actual.value as { version?: number } | undefined)?.version : undefined
  if (typeof given !== 'number' || given < 1) return { ...value, version: 'a positive number' }
  for (const [otherStamp, other] of versions) {
    if (otherStamp !== stamp && Math.floor(otherStamp) === Math.floor(stamp)) continue
    if (Math.sign(otherStamp - stamp) !== Math.sign(other - given)) {
      return { ...value, version: `one that fits commit ${otherStamp} with version ${other}` }
    }
  }
  versions.set(stamp, given)
  return { ...value, version: given }
}
