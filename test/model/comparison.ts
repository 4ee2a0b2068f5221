import { VersionOf } from './kv-model.ts'
import { show } from './steps.ts'
import type { Outcome, World } from './world.ts'

/** Where an answer is not what it should be; undefined if it is. */
export function disagreement(expected: Outcome, actual: Outcome, world: World): string | undefined {
  const wanted = 'value' in expected ? { value: withVersion(expected.value, actual, world) } : expected
  const [a, b] = [show(wanted), show(actual)]
  return a === b ? undefined : `expected ${a}, got ${b}`
}

/** In place of which commit it was, the number that it has: any that fits those that were seen before. */
function withVersion(value: unknown, actual: Outcome, { versions }: World): unknown {
  if (typeof value !== 'object' || value === null || !('version' in value)) return value
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
