import { MACHINE_NAMES, RUN_TAGS, TRACE_TAGS } from './recipes.ts'
import type { ScopeState } from './scope-model.ts'
import { RUN_NAMES, SCOPE_NAMES } from './scopes.ts'
import { type Primitive, type SingleCall, TENANTS, type Tenant } from './steps.ts'
import { keyOf, type World } from './world.ts'

type Make = (on: Primitive, name: string, ...args: unknown[]) => SingleCall

/**
 * Calls that together read everything that can be read. Lists would show entries that no world has. Only machines can't
 * be listed.
 */
export function* observations(worlds: readonly World[]): Generator<SingleCall> {
  for (const tenant of TENANTS) {
    yield* runsOf(tenant)
    for (const scope of SCOPE_NAMES) {
      const states = worlds.map(world => world.scope(keyOf(tenant, scope)))
      yield* callsOn(states, (on, name, ...args) => ({ tenant, scope, on, name, args }))
    }
  }
}

function* callsOn(states: readonly ScopeState[], call: Make): Generator<SingleCall> {
  yield call('kv', 'entries')
  for (const key of keysOf(states, 'kv')) yield call('kv', 'getVersioned', key)
  yield call('events', 'verifyChain')
  if (states.some(({ events }) => events.length > 0)) {
    yield call('events', 'readRange', 0, Number.POSITIVE_INFINITY)
    yield call('events', 'length')
    yield call('events', 'head')
  }
  yield call('cells', 'list')
  for (const name of keysOf(states, 'cells')) yield call('cells', 'read', name)
  for (const name of MACHINE_NAMES) yield call('machines', 'current', name)
  for (const name of keysOf(states, 'machines')) {
    yield call('machines', 'definition', name)
    yield call('machines', 'definition', name, 1)
    yield call('machines', 'isTerminal', name)
  }
  yield call('traces', 'list')
  const traces = keysOf(states, 'traces')
  for (const id of traces) {
    yield call('traces', 'tree', id)
    yield call('traces', 'children', id)
  }
  if (traces.size === 0) return
  const types = states.flatMap(state => [...state.traces.values()].map(({ stored }) => stored.trace.type))
  for (const type of new Set(types)) yield call('traces', 'queryByType', type)
  for (const tag of TRACE_TAGS) yield call('traces', 'queryByTag', tag)
  yield call('traces', 'queryByTime', 0, Number.MAX_SAFE_INTEGER)
}

function* runsOf(tenant: Tenant): Generator<SingleCall> {
  const call = (name: string, ...args: unknown[]): SingleCall => ({ on: 'runs', tenant, name, args })
  yield call('query', { includeArchived: true })
  yield call('list')
  yield call('stats')
  yield call('tombstones')
  for (const name of RUN_NAMES) {
    yield call('get', name)
    yield call('children', name)
  }
  for (const tag of RUN_TAGS) yield call('query', { tags: [tag] })
  for (const status of ['Active', 'Failed', 'Archived']) yield call('query', { status })
}

function keysOf(states: readonly ScopeState[], of: 'kv' | 'cells' | 'machines' | 'traces'): Set<string> {
  return new Set(states.flatMap(state => [...state[of].keys()]))
}
