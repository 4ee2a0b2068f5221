import type { Random } from '../../src/testing/random.ts'
import { BAD_CELL_FUNCTIONS } from './cell-functions.ts'
import type { Call, Primitive, RunsCall, Tenant } from './steps.ts'

/** Calls that are invalid in every state. Each fails with `INVALID_ARGUMENT` and changes nothing. */

const LONE = '\ud800'
const DEEP = JSON.parse('['.repeat(65) + ']'.repeat(65)) as unknown
const THOUGHT = { type: 'Thought', content: 'x' }

type Bad = readonly [on: Primitive, name: string, ...args: unknown[]]

const BAD: readonly Bad[] = [
  ['kv', 'get', ''],
  ['kv', 'put', 'a', undefined],
  ['kv', 'put', 'a', LONE],
  ['kv', 'put', 'a', DEEP],
  ['kv', 'put', 'a', 2n ** 63n],
  ['kv', 'put', 'a\0', 1],
  ['kv', 'put', 'x'.repeat(1025), 1],
  ['kv', 'put', 'a', 1, { ttlMs: 0 }],
  ['kv', 'put', 'a', 1, { ttlMs: 1.5 }],
  ['kv', 'put', 'a', 1, { ttl: 5 }],
  ['kv', 'put', 'a', 1, { ifAbsent: 'yes' }],
  ['kv', 'put', 'a', 1, { ifVersion: -1 }],
  ['kv', 'put', 'a', 1, { ifAbsent: true, ifVersion: 1 }],
  ['kv', 'getMany', 'a'],
  ['kv', 'getMany', ['a', '']],
  ['kv', 'write', { op: 'put', key: 'a', value: 1 }],
  [
    'kv',
    'write',
    [
      { op: 'put', key: 'a', value: 1 },
      { op: 'put', key: 'b' },
    ],
  ],
  [
    'kv',
    'write',
    [
      { op: 'put', key: 'a', value: 1 },
      { op: 'add', key: 'b', value: 1 },
    ],
  ],
  [
    'kv',
    'write',
    [
      { op: 'put', key: 'a', value: 1 },
      { op: 'delete', key: 'b', value: 1 },
    ],
  ],
  ['kv', 'list', { gt: 'a', gte: 'a' }],
  ['kv', 'list', { lt: 'a', lte: 'a' }],
  ['kv', 'list', { reverse: 1 }],
  ['kv', 'iterate', { limit: 0 }],
  ['kv', 'clear', { gt: 'a', gte: 'a' }],
  ['kv', 'update', { keys: [''] }, () => ({ result: 1 })],
  ['kv', 'update', { ranges: [{ prefix: 'a' }] }, () => ({ result: 1 })],
  ['kv', 'update', { keys: ['a'] }, 'no function'],
  ['kv', 'delete', LONE],
  ['kv', 'list', { limit: 0 }],
  ['kv', 'entries', { after: '' }],
  ['events', 'append', '', 1],
  ['events', 'append', 'x'.repeat(257), 1],
  ['events', 'append', 'note', new Date(0)],
  [
    'events',
    'appendBatch',
    [
      { type: 'note', payload: 1 },
      { type: '', payload: 1 },
    ],
  ],
  ['events', 'appendBatch', 'note'],
  ['events', 'append', 'note', 1, { expectedLength: -1 }],
  ['events', 'append', 'note', 1, { idempotencyKey: '' }],
  ['events', 'append', 'note', 1, { key: 'a' }],
  ['events', 'appendBatch', [{ type: 'note', payload: 1 }], { idempotencyKey: 'a' }],
  ['events', 'iterate', { to: -1 }],
  ['events', 'iterate', { reverse: 1 }],
  ['events', 'iterate', { types: 'note' }],
  ['events', 'readByType', 'note', { limit: 0 }],
  ['events', 'read', -1],
  ['events', 'readRange', 2, 1],
  ['events', 'readByType', ''],
  ['cells', 'init', '', 1],
  ['cells', 'init', 'x', undefined],
  ['cells', 'cas', 'x', 0.5, 1],
  ['cells', 'set', 'x', { a: undefined }],
  ['cells', 'transition', 'x', 'no function'],
  ['machines', 'define', 'door', { initial: '', transitions: [] }],
  [
    'machines',
    'define',
    'door',
    { initial: 'a', transitions: [{ from: 'a', event: 'e', to: 'b', guard: 'nobody' }] },
  ],
  [
    'machines',
    'define',
    'door',
    { initial: 'a', terminal: ['a'], transitions: [{ from: 'a', event: 'e', to: 'b' }] },
  ],
  ['machines', 'send', 'door', ''],
  ['machines', 'definition', 'door', -1],
  ['traces', 'record', { type: 'Thought' }, { id: 't1' }],
  ['traces', 'record', { type: 'Dream', content: 'x' }, { id: 't1' }],
  ['traces', 'record', { ...THOUGHT, mood: 1 }, { id: 't1' }],
  ['traces', 'record', THOUGHT, { id: '' }],
  ['traces', 'record', THOUGHT, { id: 't1', tags: 'p' }],
  ['traces', 'record', THOUGHT, { id: 't1', tags: [''] }],
  ['traces', 'recordChild', '', THOUGHT, { id: 't1' }],
  ['traces', 'queryByTime', 5, 4],
  ['traces', 'get', 'a\0b'],
]

const BAD_RUNS: readonly (readonly [name: string, ...args: unknown[]])[] = [
  ['create', { runId: '' }],
  ['create', { runId: '_shared' }],
  ['create', { runId: 'x'.repeat(257) }],
  ['create', { runId: 'r1', tags: [1] }],
  ['create', { runId: 'r1', metadata: () => 1 }],
  ['create', { id: 'r1' }],
  ['get', 7],
  ['updateStatus', 'r1', 'Done'],
  ['fail', 'r1', undefined],
  ['addTags', 'r1', 'p'],
  ['updateMetadata', 'r1', LONE],
  ['query', { limit: -1 }],
  ['query', { status: 'Done' }],
  ['query', { tag: 'p' }],
  ['query', { createdAfter: 'now' }],
  ['list', { archived: true }],
  ['delete', 'r1', { reason: '' }],
  ['delete', 'r1', { purgeLedger: true }],
]

export function badCall(random: Random, inTransaction: boolean): Call {
  // In a read-only transaction, the check whether it may write comes before the check of the function's result.
  if (!inTransaction && random.chance(0.1)) {
    const name = random.pick(Object.keys(BAD_CELL_FUNCTIONS))
    return { on: 'cells', name: 'transitionOrInit', args: ['x', 1, name], bad: true }
  }
  const [on, name, ...args] = random.pick(BAD)
  return { on, name, args, bad: true }
}

export function badRunsCall(random: Random, tenant: Tenant): RunsCall {
  const [name, ...args] = random.pick(BAD_RUNS)
  return { on: 'runs', tenant, name, args, bad: true }
}
