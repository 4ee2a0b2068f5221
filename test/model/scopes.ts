import { agentShared, appShared, namespace, type Scope, tenantShared } from '../../src/index.ts'

/** The scopes that programs use, by name. A name that is none of the others is a run id. */
const SHARED: Readonly<Record<string, (tenant: string) => readonly [Scope, readonly string[]]>> = {
  'r1 of app a': tenant => [namespace({ tenant, app: 'a', agent: 'b', run: 'r1' }), ['a', 'b', 'r1']],
  'shared by agent b': tenant => [agentShared({ tenant, app: 'a', agent: 'b' }), ['a', 'b', '_shared']],
  'shared by app a': tenant => [appShared({ tenant, app: 'a' }), ['a', '_shared', '_shared']],
  'shared by all': tenant => [tenantShared({ tenant }), ['_shared', '_shared', '_shared']],
}

/** Two of them are escaped in keys, and one would be another's prefix if it weren't. */
export const RUN_IDS: readonly string[] = ['r1', 'r2', 'r:1', 'r%']
export const SCOPE_NAMES: readonly string[] = [...RUN_IDS, ...Object.keys(SHARED)]

export function scopeOf(tenant: string, name: string): Scope {
  return find(tenant, name)[0]
}

/** As the hash of an event takes them in. */
export function partsOf(tenant: string, name: string): readonly string[] {
  return find(tenant, name)[1]
}

const known = new Map<string, readonly [Scope, readonly string[]]>()

function find(tenant: string, name: string): readonly [Scope, readonly string[]] {
  const found = known.get(`${tenant} ${name}`)
  if (found !== undefined) return found
  const [scope, parts] = Object.hasOwn(SHARED, name)
    ? SHARED[name](tenant)
    : ([name, ['default', 'default', name]] as const)
  const made = [scope, [tenant, ...parts]] as const
  known.set(`${tenant} ${name}`, made)
  return made
}
