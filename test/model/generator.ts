import { Random } from '../../src/testing/random.ts'
import { badCall, badRunsCall } from './bad-input.ts'
import {
  CELL_NAMES,
  DEFINITIONS,
  KEYS,
  MACHINE_NAMES,
  newTrace,
  RECIPES,
  RUN_RECIPES,
  TRACE_IDS,
  value,
} from './recipes.ts'
import { RUN_IDS, RUN_NAMES, SCOPE_NAMES } from './scopes.ts'
import type {
  Call,
  Primitive,
  Program,
  RunsCall,
  ScopedCall,
  SingleCall,
  Step,
  Tenant,
  TransactionStep,
} from './steps.ts'
import { TENANTS } from './steps.ts'

/** Generates programs from a seed. They do not depend on the results of the database. */

const SLOTS = 2
/** The primitives whose calls have a name as their first argument. */
const NAMED: readonly Primitive[] = ['kv', 'cells', 'machines']
const STEPS = 50
const PRIMITIVES = Object.keys(RECIPES) as Primitive[]
/** The subject of most calls of a program, so that some programs test one primitive deeply and others test all. */
const THEMES = [...PRIMITIVES, 'runs', 'runs', 'all'] as const

export function generateProgram(seed: number): Program {
  const random = new Random(seed)
  const store = random.chance(0.5) ? 'memory' : 'disk'
  const durability = random.chance(0.7) ? 'durable' : 'relaxed'
  // A program with few places tests them more deeply.
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
    if (draw < 0.22) return { do: 'together', calls: this.#crowd(2 + random.below(2)) }
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
    const calls = this.#crowd(random.below(3)).map(call => withIds(call, random))
    // A power cut may lose acknowledged commits of a relaxed store, so only durable stores get one.
    const kind = durability === 'durable' && random.chance(0.6) ? 'power' : 'process'
    return { do: 'crash', kind, calls, turns: random.below(random.chance(0.5) ? 12 : 80) }
  }

  #crowd(size: number): (SingleCall | TransactionStep)[] {
    const random = this.#random
    const crowd: (SingleCall | TransactionStep)[] = []
    while (crowd.length < size) {
      const before = crowd.at(-1)
      if (random.chance(0.25)) {
        const { interference: _, ...transaction } = this.#transaction()
        crowd.push(transaction)
      } else if (
        before !== undefined &&
        'scope' in before &&
        'on' in before &&
        before.bad !== true &&
        random.chance(0.5)
      ) {
        crowd.push(this.#rival(before))
      } else crowd.push(this.#single())
    }
    return crowd
  }

  /** A concurrent call on the same name. */
  #rival({ tenant, scope, on, args: [name] }: ScopedCall): SingleCall {
    const call = this.#call(on)
    const isNamed = typeof name === 'string' && typeof call.args[0] === 'string' && NAMED.includes(on)
    return { ...call, tenant, scope, args: isNamed ? [name, ...call.args.slice(1)] : call.args }
  }

  #byHand(): Step {
    const random = this.#random
    const slot = random.below(SLOTS)
    const draw = random.next()
    if (draw < 0.2) return { do: 'begin', slot, ...random.pick(this.#places), readOnly: random.chance(0.1) }
    if (draw < 0.32) return { do: 'end', slot, how: 'commit' }
    if (draw < 0.36) return { do: 'end', slot, how: 'rollback' }
    return { do: 'in', slot, call: this.#anywhere(this.#call()) }
  }

  #transaction(): TransactionStep {
    const random = this.#random
    const via = random.pick(['db', 'db', 'run', 'kv', 'tenant'] as const)
    const calls = Array.from({ length: 1 + random.below(6) }, () =>
      via === 'kv' ? this.#call('kv') : this.#anywhere(this.#call()),
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

  /** A call in a transaction, which may be in another scope than the one that the transaction names. */
  #anywhere(call: Call): Call {
    const random = this.#random
    return random.chance(0.3) ? { ...call, elsewhere: random.pick(this.#places).scope } : call
  }

  /** A call of another client during a transaction. It is mostly in the same scope, so that conflicts occur. */
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
    const [name, first, ...rest] = random.pick(RUN_RECIPES)(random)
    // Often uses the run in whose scope the program works, so that runs have data.
    const isHere = RUN_NAMES.includes(place.scope) && random.chance(0.4)
    const args = [isHere ? about(place.scope, first) : first, ...rest].filter(arg => arg !== undefined)
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

/** The first argument of a call on runs, changed to this run. */
function about(run: string, first: unknown): unknown {
  if (typeof first === 'string') return run
  if (typeof first !== 'object' || first === null || !('runId' in first)) return first
  return { ...first, runId: run }
}

/** Sets the ids that the database would otherwise make. They would be unknown if a crash loses the answer. */
function withIds<C extends SingleCall | TransactionStep>(step: C, random: Random): C {
  if ('do' in step) return { ...step, calls: step.calls.map(call => withIds(call as SingleCall, random)) }
  if (step.on === 'runs' && step.name === 'create') {
    return { ...step, args: [{ runId: random.pick(RUN_IDS), ...(step.args[0] as object) }] }
  }
  if (step.on !== 'traces' || !step.name.startsWith('record') || step.bad === true) return step
  const options = step.args.at(-1) as object
  return { ...step, args: [...step.args.slice(0, -1), { id: random.pick(TRACE_IDS), ...options }] }
}
