import type { MachineDefinition, Trace, Value } from '../../src/index.ts'
import { Random } from '../../src/testing/random.ts'
import { badCall, badRunsCall } from './bad-input.ts'
import { RUN_IDS, SCOPE_NAMES } from './scopes.ts'
import type {
  Call,
  Primitive,
  Program,
  RunsCall,
  SingleCall,
  Step,
  Tenant,
  TransactionStep,
} from './steps.ts'
import { TENANTS } from './steps.ts'

/**
 * Programs that follow from a seed. There are few names of everything, so that
 * calls meet; which programs come doesn't depend on what the database answers.
 */

/** One sorts otherwise in UTF-16 than in UTF-8. */
export const KEYS: readonly string[] = ['a', 'a/1', 'a/2', 'b', 'é', '\uff5e', '😀']
export const CELL_NAMES: readonly string[] = ['x', 'y', '😀']
export const MACHINE_NAMES: readonly string[] = ['door', 'order']
export const TRACE_IDS: readonly string[] = ['t1', 't2', 't3', 't4', 'é']
export const TRACE_TAGS: readonly string[] = ['p', 'pq', 'é']
export const RUN_TAGS: readonly string[] = ['p', 'pq']
const EVENT_TYPES: readonly string[] = ['note', 'call', 'é']
const SLOTS = 2
const STEPS = 50
/** Somewhere in the life of the clock: programs begin there. */
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

export const TRACES: readonly Trace[] = [
  { type: 'ToolCall', toolName: 'search', arguments: { q: 1n }, durationMs: 5 },
  { type: 'Decision', question: 'which', options: ['a', 'b'], chosen: 'a' },
  { type: 'Query', queryType: 'sql', query: 'select', resultsCount: 3 },
  { type: 'Thought', content: 'hm', confidence: 0.5 },
  { type: 'Error', errorType: 'io', message: 'no', recoverable: true },
  { type: 'Custom', traceType: 'plan', data: [1, 2] },
]

const DEFINITIONS: readonly MachineDefinition[] = [
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

const value = (random: Random): Value => (random.chance(0.3) ? random.below(100) : random.pick(VALUES))
const tags = (random: Random, all: readonly string[]): string[] =>
  Array.from({ length: random.below(3) }, () => random.pick(all))
const bounds = (random: Random): [number, number] => {
  const start = START_MS + random.below(60)
  return [start, start + random.below(60)]
}
const listOptions = (random: Random): object => ({
  ...(random.chance(0.4) ? { prefix: random.pick(['a', 'a/', 'é']) } : {}),
  ...(random.chance(0.4) ? { after: random.pick(KEYS) } : {}),
  ...(random.chance(0.4) ? { limit: 1 + random.below(3) } : {}),
})
/** Mostly the same one, so that it has several children. */
const parentOf = (random: Random, ids: readonly string[]): string =>
  random.chance(0.7) ? ids[0] : random.pick(ids)
const newTrace = (random: Random): [Trace, object] => [
  random.pick(TRACES),
  {
    ...(random.chance(0.85) ? { id: random.pick(TRACE_IDS) } : {}),
    ...(random.chance(0.5) ? { tags: tags(random, TRACE_TAGS) } : {}),
    ...(random.chance(0.2) ? { metadata: value(random) } : {}),
  },
]
const newEvent = (random: Random): { type: string; payload: Value } => ({
  type: random.pick(EVENT_TYPES),
  payload: value(random),
})

/** The more often a recipe comes, the likelier it is. */
const RECIPES: Readonly<Record<Primitive, readonly Recipe[]>> = {
  kv: [
    random => ['put', random.pick(KEYS), value(random)],
    random => ['put', random.pick(KEYS), value(random)],
    random => ['put', random.pick(KEYS), value(random), { ttlMs: 1 + random.below(60) }],
    random => ['delete', random.pick(KEYS)],
    random => ['get', random.pick(KEYS)],
    random => ['getVersioned', random.pick(KEYS)],
    random => ['exists', random.pick(KEYS)],
    random => ['list', listOptions(random)],
    random => ['entries', listOptions(random)],
  ],
  events: [
    random => ['append', random.pick(EVENT_TYPES), value(random)],
    random => ['append', random.pick(EVENT_TYPES), value(random)],
    random => ['appendBatch', Array.from({ length: random.below(4) }, () => newEvent(random))],
    random => ['read', random.below(8)],
    random => {
      const start = random.below(6)
      return ['readRange', start, random.chance(0.3) ? Number.POSITIVE_INFINITY : start + random.below(6)]
    },
    () => ['head'],
    () => ['length'],
    random => ['iterate', { from: random.below(4) }],
    random => ['readByType', random.pick(EVENT_TYPES)],
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

const RUN_RECIPES: readonly Recipe[] = [
  random => [
    'create',
    { ...(random.chance(0.9) ? { runId: random.pick(RUN_IDS) } : {}), tags: tags(random, RUN_TAGS) },
  ],
  random => [
    'create',
    { runId: random.pick(RUN_IDS), parentRun: parentOf(random, RUN_IDS), metadata: value(random) },
  ],
  random => ['create', { runId: random.pick(RUN_IDS), parentRun: parentOf(random, RUN_IDS) }],
  random => ['create', { runId: random.pick(RUN_IDS), tags: tags(random, RUN_TAGS) }],
  random => ['updateStatus', random.pick(RUN_IDS), random.pick(STATUSES)],
  random => [random.pick(['complete', 'cancel', 'pause', 'resume', 'archive']), random.pick(RUN_IDS)],
  random => ['fail', random.pick(RUN_IDS), 'out of tokens'],
  random => ['addTags', random.pick(RUN_IDS), tags(random, RUN_TAGS)],
  random => ['updateMetadata', random.pick(RUN_IDS), value(random)],
  random => ['delete', random.pick(RUN_IDS), random.chance(0.5) ? { reason: 'asked to' } : {}],
  random => ['get', random.pick(RUN_IDS)],
  random => ['query', runQuery(random)],
  random => ['query', runQuery(random)],
  random => ['query', { createdAfter: bounds(random)[0], includeArchived: true }],
  random => ['list', random.chance(0.5) ? { includeArchived: true } : {}],
  random => ['children', random.pick(RUN_IDS)],
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
    ...(random.chance(0.2) ? { parentRun: random.pick(RUN_IDS) } : {}),
    ...(random.chance(0.3) ? { includeArchived: true } : {}),
    ...(random.chance(0.3) ? { limit: 1 + random.below(2) } : {}),
    ...(random.chance(0.2) ? { after: random.pick(RUN_IDS) } : {}),
  }
}

const PRIMITIVES = Object.keys(RECIPES) as Primitive[]
/** What most of a program's calls are about, so that some go deep and others wide. */
const THEMES = [...PRIMITIVES, 'runs', 'runs', 'all'] as const

export function generateProgram(seed: number): Program {
  const random = new Random(seed)
  const store = random.chance(0.5) ? 'memory' : 'disk'
  const durability = random.chance(0.7) ? 'durable' : 'relaxed'
  // Programs that stay in few places go deeper there.
  const places = Array.from({ length: 1 + random.below(4) }, () => placeOf(random))
  const generator = new Generator(random, places, random.pick(THEMES))
  const steps = Array.from({ length: STEPS }, () => generator.step(store, durability))
  return { seed, store, durability, steps }
}

interface Place {
  readonly tenant: Tenant
  readonly scope: string
}

function placeOf(random: Random): Place {
  const tenant = random.chance(0.75) ? TENANTS[0] : TENANTS[1]
  return { tenant, scope: random.chance(0.7) ? random.pick(RUN_IDS) : random.pick(SCOPE_NAMES) }
}

class Generator {
  readonly #random: Random
  readonly #places: readonly Place[]
  readonly #theme: (typeof THEMES)[number]

  constructor(random: Random, places: readonly Place[], theme: (typeof THEMES)[number]) {
    this.#random = random
    this.#places = places
    this.#theme = theme
  }

  step(store: Program['store'], durability: Program['durability']): Step {
    const random = this.#random
    const draw = random.next()
    if (store === 'disk' && draw < 0.06) return this.#disturbance(durability)
    if (draw < 0.14) return this.#time()
    if (draw < 0.22)
      return {
        do: 'together',
        calls: [this.#single(), this.#single(), this.#single()].slice(random.below(2)),
      }
    if (draw < 0.32) return this.#transaction()
    if (draw < 0.56) return this.#byHand()
    return { do: 'call', ...this.#oneCall() }
  }

  #oneCall(): { via: 'db' | 'run'; call: SingleCall } {
    const random = this.#random
    const place = random.pick(this.#places)
    if (random.chance(0.04)) {
      const tenant = place.tenant
      return {
        via: 'db',
        call: random.chance(0.3) ? badRunsCall(random, tenant) : { ...badCall(random, false), ...place },
      }
    }
    if (random.chance(0.02)) {
      return { via: 'db', call: { on: 'events', name: 'tail', args: [{ from: random.below(4) }], ...place } }
    }
    const call = this.#single()
    return { via: call.on !== 'runs' && random.chance(0.2) ? 'run' : 'db', call }
  }

  #time(): Step {
    const random = this.#random
    return {
      do: 'wait',
      ms: random.chance(0.15) ? -random.below(50) : random.below(random.chance(0.5) ? 4 : 30),
    }
  }

  #disturbance(durability: Program['durability']): Step {
    const random = this.#random
    const draw = random.next()
    if (draw < 0.15) return { do: 'checkpoint' }
    if (draw < 0.3) return { do: 'reopen' }
    const calls = Array.from({ length: random.below(3) }, () => {
      const { interference: _, ...transaction } = this.#transaction()
      return withIds(random.chance(0.4) ? transaction : this.#single(), random)
    })
    // Relaxed, a power cut may take away what was answered.
    const kind = durability === 'durable' && random.chance(0.6) ? 'power' : 'process'
    return { do: 'crash', kind, calls, turns: random.below(random.chance(0.5) ? 12 : 80) }
  }

  #byHand(): Step {
    const random = this.#random
    const slot = random.below(SLOTS)
    const draw = random.next()
    if (draw < 0.2) return { do: 'begin', slot, ...random.pick(this.#places), readOnly: random.chance(0.1) }
    if (draw < 0.32) return { do: 'end', slot, how: 'commit' }
    if (draw < 0.36) return { do: 'end', slot, how: 'rollback' }
    return { do: 'in', slot, call: this.#call() }
  }

  #transaction(): TransactionStep {
    const random = this.#random
    const via = random.pick(['db', 'db', 'run', 'kv'] as const)
    const calls = Array.from({ length: 1 + random.below(6) }, () =>
      this.#call(via === 'kv' ? 'kv' : undefined),
    )
    const at = random.below(calls.length)
    const place = random.pick(this.#places)
    return {
      do: 'transaction',
      ...place,
      calls,
      end: random.chance(0.75) ? 'commit' : 'throw',
      readOnly: via !== 'kv' && random.chance(0.1),
      via,
      ...(random.chance(0.5)
        ? { interference: { at, call: this.#interference(place, random.pick(calls)) } }
        : {}),
    }
  }

  /** Mostly in the same place, so that there is a conflict now and then. */
  #interference(place: Place, other: Call): SingleCall {
    const random = this.#random
    if (random.chance(0.3)) return random.chance(0.5) ? { ...this.#call(), ...place } : this.#single()
    const [name] = other.args
    const same = <T>(all: readonly T[]): T => (all.includes(name as T) ? (name as T) : random.pick(all))
    switch (other.on) {
      case 'kv':
        return { on: 'kv', name: 'put', args: [same(KEYS), value(random)], ...place }
      case 'events':
        return { on: 'events', name: 'append', args: ['note', value(random)], ...place }
      case 'cells':
        return { on: 'cells', name: 'set', args: [same(CELL_NAMES), value(random)], ...place }
      case 'machines':
        return {
          on: 'machines',
          name: 'define',
          args: [same(MACHINE_NAMES), random.pick(DEFINITIONS)],
          ...place,
        }
      case 'traces':
        return { on: 'traces', name: 'record', args: newTrace(random), ...place }
    }
  }

  #single(): SingleCall {
    const random = this.#random
    const place = random.pick(this.#places)
    if (!random.chance(this.#theme === 'runs' ? 0.7 : 0.15)) return { ...this.#call(), ...place }
    const [name, ...args] = random.pick(RUN_RECIPES)(random)
    return { on: 'runs', tenant: place.tenant, name, args } satisfies RunsCall
  }

  #call(only?: Primitive): Call {
    const random = this.#random
    if (only === undefined && random.chance(0.02)) return badCall(random, true)
    const theme = this.#theme
    const isWide = theme === 'runs' || theme === 'all' || random.chance(0.4)
    const on = only ?? (isWide ? random.pick(PRIMITIVES) : theme)
    const [name, ...args] = random.pick(RECIPES[on])(random)
    return { on, name, args, ...(on === 'events' && random.chance(0.4) ? { look: true } : {}) }
  }
}

/** An id that the database makes is lost if nobody hears the answer. */
function withIds<C extends SingleCall | TransactionStep>(step: C, random: Random): C {
  if ('do' in step) return { ...step, calls: step.calls.map(call => withIds(call as SingleCall, random)) }
  if (step.on === 'runs' && step.name === 'create') {
    return { ...step, args: [{ runId: random.pick(RUN_IDS), ...(step.args[0] as object) }] }
  }
  if (step.on !== 'traces' || !step.name.startsWith('record') || step.bad === true) return step
  const options = step.args.at(-1) as object
  return { ...step, args: [...step.args.slice(0, -1), { id: random.pick(TRACE_IDS), ...options }] }
}
