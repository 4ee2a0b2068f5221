import { CELL_NAMES, KEYS, MACHINE_NAMES, RUN_TAGS, TRACE_IDS, TRACE_TAGS, TRACES } from './generator.ts'
import { RUN_IDS, SCOPE_NAMES } from './scopes.ts'
import { type Primitive, type SingleCall, TENANTS, type Tenant } from './steps.ts'
import { keyOf, type World } from './world.ts'

/** Calls that together show everything that can be seen. */
export function* observations(worlds: readonly World[]): Generator<SingleCall> {
  for (const tenant of TENANTS) {
    yield* runsOf(tenant)
    for (const scope of SCOPE_NAMES) {
      const isEmpty = worlds.every(world => world.scope(keyOf(tenant, scope)).isEmpty)
      const call = (on: Primitive, name: string, ...args: unknown[]): SingleCall => ({
        tenant,
        scope,
        on,
        name,
        args,
      })
      yield call('kv', 'entries')
      yield call('events', 'verifyChain')
      yield call('cells', 'list')
      yield call('traces', 'list')
      if (!isEmpty) yield* scopeCalls(call)
    }
  }
}

function* scopeCalls(
  call: (on: Primitive, name: string, ...args: unknown[]) => SingleCall,
): Generator<SingleCall> {
  for (const key of KEYS) yield call('kv', 'getVersioned', key)
  yield call('events', 'readRange', 0, Number.POSITIVE_INFINITY)
  yield call('events', 'length')
  yield call('events', 'head')
  for (const name of CELL_NAMES) yield call('cells', 'read', name)
  for (const name of MACHINE_NAMES) {
    yield call('machines', 'current', name)
    yield call('machines', 'definition', name)
    yield call('machines', 'definition', name, 1)
    yield call('machines', 'isTerminal', name)
  }
  for (const { type } of TRACES) yield call('traces', 'queryByType', type)
  for (const tag of TRACE_TAGS) yield call('traces', 'queryByTag', tag)
  for (const id of TRACE_IDS) yield call('traces', 'children', id)
  yield call('traces', 'queryByTime', 0, Number.MAX_SAFE_INTEGER)
  yield call('traces', 'tree', TRACE_IDS[0])
}

function* runsOf(tenant: Tenant): Generator<SingleCall> {
  const call = (name: string, ...args: unknown[]): SingleCall => ({ on: 'runs', tenant, name, args })
  yield call('query', { includeArchived: true })
  yield call('list')
  yield call('stats')
  yield call('tombstones')
  for (const id of RUN_IDS) yield call('children', id)
  for (const tag of RUN_TAGS) yield call('query', { tags: [tag] })
  for (const status of ['Active', 'Failed', 'Archived']) yield call('query', { status })
}
