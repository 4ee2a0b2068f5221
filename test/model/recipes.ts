import type { MachineDefinition, Trace, Value } from '../../src/index.ts'
import type { Random } from '../../src/testing/random.ts'
import { RUN_IDS, RUN_NAMES, SCOPE_NAMES } from './scopes.ts'
import type { Primitive } from './steps.ts'

/** The calls that programs are made of. There are few keys, names and ids, so that calls affect each other. */

/** The last two sort differently in UTF-16 and in UTF-8. */
export const KEYS: readonly string[] = ['a', 'a/1', 'a/2', 'b', 'é', '\uff5e', '😀']
export const CELL_NAMES: readonly string[] = ['x', 'y', '😀']
export const MACHINE_NAMES: readonly string[] = ['door', 'order']
export const TRACE_IDS: readonly string[] = ['t1', 't2', 't3', 't4', 'é']
export const TRACE_TAGS: readonly string[] = ['p', 'pq', 'é']
export const RUN_TAGS: readonly string[] = ['p', 'pq']
const EVENT_TYPES: readonly string[] = ['note', 'call', 'é']
/** The time at which programs begin. */
const START_MS = 1_750_000_000_000

const VALUES: readonly Value[] = [
  null,
  true,
  0,
  -0,
  Number.NaN,
  Number.NEGATIVE_INFINITY,
  1.5,
  2n ** 63n - 1n,
  '',
  'text',
  '\0nul',
  new Uint8Array([0, 255]),
  [],
  [1, [2n]],
  { b: 1, a: { ['__proto__']: 2 } },
]

const TRACES: readonly Trace[] = [
  { type: 'ToolCall', toolName: 'search', arguments: { q: 1n }, durationMs: 5 },
  { type: 'Decision', question: 'which', options: ['a', 'b'], chosen: 'a' },
  { type: 'Query', queryType: 'sql', query: 'select', resultsCount: 3 },
  { type: 'Thought', content: 'hm', confidence: 0.5 },
  { type: 'Error', errorType: 'io', message: 'no', recoverable: true },
  { type: 'Custom', traceType: 'plan', data: [1, 2] },
]

export const DEFINITIONS: readonly MachineDefinition[] = [
  { initial: 'shut', transitions: [{ from: 'shut', event: 'push', to: 'open' }] },
  {
    initial: 'shut',
    terminal: ['gone'],
    transitions: [
      { from: 'shut', event: 'push', to: 'open', guard: 'isPaid' },
      { from: 'shut', event: 'push', to: 'shut' },
      { from: 'open', event: 'pull', to: 'shut' },
      { from: 'open', event: 'smash', to: 'gone' },
    ],
  },
  { initial: 'new', transitions: [{ from: 'new', event: 'push', to: 'shut' }] },
]
const MACHINE_EVENTS: readonly string[] = ['push', 'pull', 'smash']
const STATUSES = ['Active', 'Completed', 'Failed', 'Cancelled', 'Paused', 'Archived'] as const

type Recipe = (random: Random) => readonly [name: string, ...args: unknown[]]

export const value = (random: Random): Value => (random.chance(0.3) ? random.below(100) : random.pick(VALUES))
const tags = (random: Random, all: readonly string[]): string[] =>
  Array.from({ length: random.below(3) }, () => random.pick(all))
const bounds = (random: Random): [number, number] => {
  // Most programs do a lot before time advances.
  const start = START_MS + (random.chance(0.5) ? 0 : random.below(60))
  return [start, start + random.below(60)]
}
const listOptions = (random: Random): object => ({
  ...(random.chance(0.4) ? { prefix: random.pick(['a', 'a/', 'é']) } : {}),
  ...(random.chance(0.4) ? { after: random.pick(KEYS) } : {}),
  ...(random.chance(0.2) ? { [random.pick(['gt', 'gte'])]: random.pick(KEYS) } : {}),
  ...(random.chance(0.2) ? { [random.pick(['lt', 'lte'])]: random.pick(KEYS) } : {}),
  ...(random.chance(0.3) ? { reverse: true } : {}),
  ...(random.chance(0.4) ? { limit: 1 + random.below(3) } : {}),
})
const updateReads = (random: Random): object => ({
  keys: [...new Set(Array.from({ length: random.below(3) }, () => random.pick(KEYS)))],
  ranges: Array.from({ length: random.below(3) }, () => ({
    ...listOptions(random),
    limit: 1 + random.below(3),
  })),
})
const keyWrite = (random: Random): object => {
  const key = random.pick(KEYS)
  if (random.chance(0.3)) return { op: 'delete', key }
  return {
    op: 'put',
    key,
    value: value(random),
    ...(random.chance(0.3) ? { ttlMs: 1 + random.below(60) } : {}),
  }
}
/** Mostly the first id, so that it has several children. */
const parentOf = (random: Random, ids: readonly string[]): string =>
  random.chance(0.7) ? ids[0] : random.pick(ids)
/** Mostly an id, because most programs use runs by id. */
const runName = (random: Random): string => random.pick(random.chance(0.6) ? RUN_IDS : RUN_NAMES)
export const newTrace = (random: Random): [Trace, object] => [
  random.pick(TRACES),
  {
    ...(random.chance(0.85) ? { id: random.pick(TRACE_IDS) } : {}),
    ...(random.chance(0.5) ? { tags: tags(random, TRACE_TAGS) } : {}),
    ...(random.chance(0.2) ? { metadata: value(random) } : {}),
  },
]
const appendOptions = (random: Random): object => ({
  ...(random.chance(0.7) ? { idempotencyKey: random.pick(['k', 'é']) } : {}),
  ...(random.chance(0.4) ? { expectedLength: random.below(5) } : {}),
})
const spanOptions = (random: Random): object => ({
  ...(random.chance(0.5) ? { from: random.below(5) } : {}),
  ...(random.chance(0.5) ? { to: random.below(7) } : {}),
  ...(random.chance(0.7) ? { reverse: true } : {}),
  ...(random.chance(0.3) ? { types: [random.pick(EVENT_TYPES), 'note'] } : {}),
})
const newEvent = (random: Random): { type: string; payload: Value } => ({
  type: random.pick(EVENT_TYPES),
  payload: value(random),
})

/** The calls of each primitive. A recipe that is listed more often is more frequent. */
export const RECIPES: Readonly<Record<Primitive, readonly Recipe[]>> = {
  kv: [
    random => ['put', random.pick(KEYS), value(random)],
    random => ['put', random.pick(KEYS), value(random)],
    random => ['put', random.pick(KEYS), value(random), { ttlMs: 1 + random.below(60) }],
    random => ['delete', random.pick(KEYS)],
    random => ['get', random.pick(KEYS)],
    random => ['getVersioned', random.pick(KEYS)],
    random => ['exists', random.pick(KEYS)],
    random => ['put', random.pick(KEYS), value(random), { ifAbsent: true }],
    random => ['write', Array.from({ length: random.below(4) }, () => keyWrite(random))],
    random => ['getMany', Array.from({ length: random.below(4) }, () => random.pick(KEYS))],
    random => ['list', listOptions(random)],
    random => ['entries', listOptions(random)],
    random => ['iterate', listOptions(random)],
    random => ['clear', listOptions(random)],
    random => ['update', updateReads(random), random.pick(['claim', 'count', 'look', 'fail'])],
    random => ['update', updateReads(random), random.pick(['claim', 'count'])],
  ],
  events: [
    random => ['append', random.pick(EVENT_TYPES), value(random)],
    random => ['append', random.pick(EVENT_TYPES), value(random)],
    random => ['append', random.pick(EVENT_TYPES), value(random), appendOptions(random)],
    random => ['appendBatch', Array.from({ length: random.below(4) }, () => newEvent(random))],
    random => ['appendBatch', [newEvent(random), newEvent(random)], { expectedLength: random.below(5) }],
    random => ['read', random.below(8)],
    random => {
      const start = random.below(6)
      return ['readRange', start, random.chance(0.3) ? Number.POSITIVE_INFINITY : start + random.below(6)]
    },
    () => ['head'],
    () => ['length'],
    random => ['iterate', { from: random.below(4) }],
    random => ['iterate', spanOptions(random)],
    random => ['readByType', random.pick(EVENT_TYPES)],
    random => [
      'readByType',
      random.pick(EVENT_TYPES),
      { after: random.below(4), limit: 1 + random.below(3) },
    ],
    () => ['verifyChain'],
  ],
  cells: [
    random => ['init', random.pick(CELL_NAMES), value(random)],
    random => ['cas', random.pick(CELL_NAMES), 1 + random.below(4), value(random)],
    random => ['cas', random.pick(CELL_NAMES), 1 + random.below(4), value(random)],
    random => ['set', random.pick(CELL_NAMES), value(random)],
    random => ['delete', random.pick(CELL_NAMES)],
    random => ['read', random.pick(CELL_NAMES)],
    random => ['exists', random.pick(CELL_NAMES)],
    () => ['list'],
    random => ['transition', random.pick(CELL_NAMES), random.pick(['count', 'wrap', 'keep', 'fail'])],
    random => ['transitionOrInit', random.pick(CELL_NAMES), value(random), random.pick(['count', 'keep'])],
  ],
  machines: [
    random => ['define', random.pick(MACHINE_NAMES), random.pick(DEFINITIONS)],
    random => ['define', random.pick(MACHINE_NAMES), random.pick(DEFINITIONS)],
    random => ['send', random.pick(MACHINE_NAMES), random.pick(MACHINE_EVENTS)],
    random => ['send', random.pick(MACHINE_NAMES), random.pick(MACHINE_EVENTS), random.pick(['paid', 'due'])],
    random => ['current', random.pick(MACHINE_NAMES)],
    random => ['isTerminal', random.pick(MACHINE_NAMES)],
    random => ['can', random.pick(MACHINE_NAMES), random.pick(MACHINE_EVENTS), 'paid'],
    random => ['definition', random.pick(MACHINE_NAMES)],
    random => ['definition', random.pick(MACHINE_NAMES), random.below(4)],
  ],
  traces: [
    random => ['record', ...newTrace(random)],
    random => ['record', ...newTrace(random)],
    random => ['recordChild', parentOf(random, TRACE_IDS), ...newTrace(random)],
    random => ['recordChild', parentOf(random, TRACE_IDS), ...newTrace(random)],
    random => ['get', random.pick(TRACE_IDS)],
    random => ['queryByType', random.pick(TRACES).type],
    random => ['queryByTag', random.pick(TRACE_TAGS)],
    random => ['queryByTime', ...bounds(random)],
    random => ['children', random.pick(TRACE_IDS)],
    random => ['tree', random.pick(TRACE_IDS)],
    () => ['list'],
    () => ['count'],
  ],
}

export const RUN_RECIPES: readonly Recipe[] = [
  random => [
    'create',
    { ...(random.chance(0.9) ? { runId: runName(random) } : {}), tags: tags(random, RUN_TAGS) },
  ],
  random => [
    'create',
    { runId: runName(random), parentRun: parentOf(random, RUN_NAMES), metadata: value(random) },
  ],
  random => ['create', { runId: runName(random), parentRun: parentOf(random, RUN_NAMES) }],
  random => ['create', { runId: runName(random), tags: tags(random, RUN_TAGS) }],
  random => ['updateStatus', runName(random), random.pick(STATUSES)],
  random => [random.pick(['complete', 'cancel', 'pause', 'resume', 'archive']), runName(random)],
  random => ['fail', runName(random), 'out of tokens'],
  random => ['addTags', runName(random), tags(random, RUN_TAGS)],
  random => ['updateMetadata', runName(random), value(random)],
  random => ['delete', runName(random), random.chance(0.5) ? { reason: 'asked to' } : {}],
  random => ['get', runName(random)],
  random => ['query', runQuery(random)],
  random => ['query', runQuery(random)],
  random => ['query', { createdAfter: bounds(random)[0], includeArchived: true }],
  random => ['list', random.chance(0.5) ? { includeArchived: true } : {}],
  random => ['children', runName(random)],
  random => ['ensure', runName(random), random.chance(0.3) ? { parentRun: parentOf(random, RUN_NAMES) } : {}],
  random => ['drop', random.pick([...SCOPE_NAMES, 'r1 of default'])],
  () => ['tombstones'],
  () => ['stats'],
]

function runQuery(random: Random): object {
  const [createdAfter, createdBefore] = bounds(random)
  return {
    ...(random.chance(0.3) ? { status: random.pick(STATUSES) } : {}),
    ...(random.chance(0.3) ? { tags: tags(random, RUN_TAGS) } : {}),
    ...(random.chance(0.3) ? { createdAfter } : {}),
    ...(random.chance(0.2) ? { createdBefore } : {}),
    ...(random.chance(0.2) ? { parentRun: runName(random) } : {}),
    ...(random.chance(0.3) ? { includeArchived: true } : {}),
    ...(random.chance(0.3) ? { limit: 1 + random.below(2) } : {}),
    ...(random.chance(0.2) ? { after: runName(random) } : {}),
  }
}
