import { agentShared, appShared, namespace, type Scope, tenantShared } from '../../src/index.ts'

/** The scopes that programs use, by name. Any other name is a run id. */

interface Parts {
  readonly app: string
  readonly agent: string
  readonly run: string
}

/** Scopes for runs. One has an escaped part, and one is the scope to which a run id alone refers. */
const PLACES: Readonly<Record<string, Parts>> = {
  'r1 of app a': { app: 'a', agent: 'b', run: 'r1' },
  'r2 of app a': { app: 'a', agent: 'b', run: 'r2' },
  'r1 of agent :': { app: 'default', agent: ':', run: 'r1' },
  'r1 of default': { app: 'default', agent: 'default', run: 'r1' },
}
const SHARED: Readonly<Record<string, Parts>> = {
  'shared by agent b': { app: 'a', agent: 'b', run: '_shared' },
  'shared by app a': { app: 'a', agent: '_shared', run: '_shared' },
  'shared by all': { app: '_shared', agent: '_shared', run: '_shared' },
}
/** The scope in which Annals stores the index of runs. */
const RESERVED = 'shared by all'

/** Two of them are escaped in keys. Without escaping, one would be a prefix of another. */
export const RUN_IDS: readonly string[] = ['r1', 'r2', 'r:1', 'r%']
/** The names under which a run can be addressed. */
export const RUN_NAMES: readonly string[] = [...RUN_IDS, ...Object.keys(PLACES)]
/** Names of different scopes, one for each scope. */
export const SCOPE_NAMES: readonly string[] = [
  ...RUN_IDS,
  ...Object.keys(PLACES).filter(name => placedIn(PLACES[name]) === name),
  ...Object.keys(SHARED),
]

export function scopeOf(tenant: string, name: string): Scope {
  return find(tenant, name)[0]
}

/** The parts of a scope as they enter the hash of an event. */
export function partsOf(tenant: string, name: string): readonly string[] {
  return find(tenant, name)[1]
}

/** The run with this name. A namespace means the run in this app and agent, and an id means the run in any scope. */
export function runNamed(name: string): { readonly runId: string; readonly scope: string | undefined } {
  return Object.hasOwn(PLACES, name)
    ? { runId: PLACES[name].run, scope: placedIn(PLACES[name]) }
    : { runId: name, scope: undefined }
}

/** The name of the scope in which a run lives. */
export function placedIn({
  app = 'default',
  agent = 'default',
  run,
}: Partial<Parts> & { readonly run: string }): string {
  if (app === 'default' && agent === 'default') return run
  const names = Object.keys(PLACES)
  const is = ({ app: a, agent: b, run: c }: Parts): boolean => a === app && b === agent && c === run
  return names.find(name => is(PLACES[name])) ?? `${app}:${agent}:${run}`
}

/** App and agent of a scope, as they are shown by a run and its tombstone. */
export function shownPlace(name: string): { readonly app?: string; readonly agent?: string } {
  const { app, agent } = PLACES[name] ?? SHARED[name] ?? { app: 'default', agent: 'default' }
  return { ...(app === 'default' ? {} : { app }), ...(agent === 'default' ? {} : { agent }) }
}

/** The last part of a scope's name. */
export function runPartOf(name: string): string {
  return (PLACES[name] ?? SHARED[name])?.run ?? name
}

export function isReserved(name: string): boolean {
  return name === RESERVED
}

const known = new Map<string, readonly [Scope, readonly string[]]>()

function find(tenant: string, name: string): readonly [Scope, readonly string[]] {
  const found = known.get(`${tenant} ${name}`)
  if (found !== undefined) return found
  const parts = PLACES[name] ?? SHARED[name]
  const { app, agent, run } = parts ?? { app: 'default', agent: 'default', run: name }
  const scope = parts === undefined ? name : namespaceOf(tenant, parts)
  const made = [scope, [tenant, app, agent, run]] as const
  known.set(`${tenant} ${name}`, made)
  return made
}

function namespaceOf(tenant: string, { app, agent, run }: Parts): Scope {
  if (run !== '_shared') return namespace({ tenant, app, agent, run })
  if (agent !== '_shared') return agentShared({ tenant, app, agent })
  return app === '_shared' ? tenantShared({ tenant }) : appShared({ tenant, app })
}
