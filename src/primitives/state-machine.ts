import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import type { Given } from '../core/storable.ts'
import { checkText } from '../core/text.ts'
import { decodeValue, encodeCanonical, encodeValue, type Value } from '../core/value.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import type { Session } from '../engine/session.ts'
import type { Entry, Place, Put } from '../engine/storage.ts'
import { boundForm } from './bound.ts'
import {
  checkDefinition,
  drawMachine,
  type EventNameOf,
  type Guard,
  type MachineDefinition,
  type MachineTransition,
  type StateOf,
  statesOf,
} from './machine-definition.ts'

const TAG = TAGS.machine
const NAME_BYTES_MAX = 1024

/** A machine's state as it was read. */
export interface MachineState<State extends string = string> {
  /** The name of the current state. */
  readonly state: State
  /** 1 after `define`, and one more with each transition. */
  readonly version: number
  /** When the machine was created or last took a transition, in milliseconds since 1970. */
  readonly updatedAt: number
}

/** The state after a transition, and the one before it. */
export interface MachineStep<State extends string = string> extends MachineState<State> {
  /** The state before the transition. */
  readonly from: State
}

/** A definition as it is stored, with defaults filled in. */
export interface StoredDefinition extends Required<MachineDefinition> {
  /** 1 for the first definition, and one more with each change. */
  readonly version: number
}

/**
 * State machines: cells that change only as their definition allows. Every version of the definition is stored with the run.
 * `S` holds the parameters that come before the others: a scope, or nothing if the scope is bound. `D` is the type of the
 * definition, which has the names of the states and events.
 */
export interface MachinesCalls<
  S extends readonly unknown[],
  D extends MachineDefinition = MachineDefinition,
> {
  /**
   * Creates a machine in its initial state, or changes the definition of an existing one, which keeps its state. Throws
   * `INVALID_OPERATION` if the new definition lacks that state.
   * @example
   * const made = await db.machines.define(run, 'order', {
   *   initial: 'open',
   *   terminal: ['shipped'],
   *   transitions: [{ from: 'open', event: 'ship', to: 'shipped' }],
   * })
   * made.state // → 'open'
   */
  define<const T extends D>(...args: [...S, name: string, definition: T]): Promise<MachineState<StateOf<T>>>

  /**
   * Takes the transition for this event. Throws `INVALID_TRANSITION` if there is none, with the allowed events in `details`,
   * and `MACHINE_NOT_FOUND` if the machine is not defined.
   * @example
   * await db.machines.define(run, 'door', {
   *   initial: 'shut',
   *   transitions: [{ from: 'shut', event: 'push', to: 'open' }],
   * })
   * const { from, state, version } = await db.machines.send(run, 'door', 'push')
   * from // → 'shut'
   * state // → 'open'
   * version // → 2
   */
  send<T>(
    ...args: [...S, name: string, event: EventNameOf<D>, payload?: Given<Value, T>]
  ): Promise<MachineStep<StateOf<D>>>

  /**
   * Returns the machine's state.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [] })
   * const { state } = await db.machines.current(run, 'light')
   * state // → 'off'
   */
  current(...args: [...S, name: string]): Promise<MachineState<StateOf<D>>>

  /**
   * Returns whether the machine is in a terminal state: one that its definition lists in `terminal`, or, without that list,
   * one that no transition leaves.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [] })
   * await db.machines.isTerminal(run, 'light') // → true
   */
  isTerminal(...args: [...S, name: string]): Promise<boolean>

  /**
   * Returns whether `send` would take a transition now.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [{ from: 'off', event: 'flip', to: 'on' }] })
   * await db.machines.can(run, 'light', 'flip') // → true
   * await db.machines.can(run, 'light', 'smash') // → false
   */
  can<T>(...args: [...S, name: string, event: EventNameOf<D>, payload?: Given<Value, T>]): Promise<boolean>

  /**
   * Returns the definition, or an earlier version of it.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [] })
   * const { version, initial } = await db.machines.definition(run, 'light')
   * version // → 1
   * initial // → 'off'
   */
  definition(...args: [...S, name: string, version?: number]): Promise<StoredDefinition>

  /**
   * Returns the definition as a Mermaid diagram.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [{ from: 'off', event: 'flip', to: 'on' }] })
   * const drawing = await db.machines.toMermaid(run, 'light')
   * drawing.split('\n')[1] // → '  state "off" as s0'
   * drawing.split('\n')[4] // → '  s0 --> s1: flip'
   */
  toMermaid(...args: [...S, name: string]): Promise<string>

  /**
   * Returns the same calls, with the states and events of a definition as types.
   * @example
   * // In TypeScript: const light = { … } as const satisfies MachineDefinition, and db.machines.of<typeof light>()
   * const light = { initial: 'off', transitions: [{ from: 'off', event: 'flip', to: 'on' }] }
   * const lights = db.machines.of()
   * await lights.define(run, 'hall', light)
   * const { state } = await lights.send(run, 'hall', 'flip')
   * state // → 'on'
   */
  of<T extends MachineDefinition>(): MachinesCalls<S, T>
}

/** The machines of all scopes. Each call is its own transaction. */
export type Machines<D extends MachineDefinition = MachineDefinition> = MachinesCalls<[scope: Scope], D>
/** The machines of one scope. In a transaction, reads see the transaction's own writes. */
export type ScopedMachines<D extends MachineDefinition = MachineDefinition> = MachinesCalls<[], D>

/** The guards that machines refer to by name. */
type Guards = Readonly<Record<string, Guard>>

/** Implements `MachinesCalls`. `S` is a scope, or undefined if `scopeOf` knows it. */
export class MachineStore<S> implements MachinesCalls<[scope: S]> {
  readonly #session: Session
  readonly #scopeOf: (scope: S) => ByteString
  readonly #guards: Guards

  constructor(session: Session, scopeOf: (scope: S) => ByteString, guards: Guards) {
    this.#session = session
    this.#scopeOf = scopeOf
    this.#guards = guards
  }

  async define<const T extends MachineDefinition>(
    scope: S,
    name: string,
    definition: T,
  ): Promise<MachineState<StateOf<T>>> {
    const places = placesOf(this.#scopeOf(scope), name)
    const checked = checkDefinition(definition, this.#guards)
    const { initial, terminal, transitions } = checked
    const { result, time } = await this.#session.update(
      [places.state, places.definition],
      ([stateEntry, definitionEntry]) => {
        const before = stateEntry && stateOf(stateEntry)
        const old = definitionEntry && definitionOf(definitionEntry)
        if (before !== undefined && !statesOf(initial, transitions, terminal).includes(before.state)) {
          const message = `the machine ${quote(name)} is in ${quote(before.state)}, which the new definition lacks`
          throw new AnnalsError('INVALID_OPERATION', message, { name, state: before.state })
        }
        const version = (old?.version ?? 0) + 1
        // Canonical, because an equal definition has to have equal bytes.
        const value = encodeCanonical({ ...checked, version })
        if (
          old !== undefined &&
          encodeCanonical({ ...checked, version: old.version }) === definitionEntry?.value
        ) {
          return { operations: [], result: before }
        }
        const operations: Put[] = [
          { op: 'put', ...places.definition, value },
          { op: 'put', ...versionPlace(places.state.scope, name, version), value },
        ]
        if (before === undefined)
          operations.push({ op: 'put', ...places.state, value: encodeState(initial, 1) })
        return { operations, result: before }
      },
    )
    return result ?? Object.freeze({ state: initial, version: 1, updatedAt: time })
  }

  async send(scope: S, name: string, event: string, payload?: unknown): Promise<MachineStep> {
    const places = placesOf(this.#scopeOf(scope), name)
    const input = checkPayload(payload)
    checkText('event', event, { bytesMax: NAME_BYTES_MAX })
    const { result, time } = await this.#session.update(
      [places.state, places.definition],
      ([stateEntry, definitionEntry]) => {
        const { state: from, version } = stateOf(found(name, stateEntry))
        const definition = definitionOf(found(name, definitionEntry))
        const taken = this.#transition(definition, from, event, input)
        if (taken === undefined) throw this.#refusal(name, definition, from, event, input)
        const operation: Put = { op: 'put', ...places.state, value: encodeState(taken.to, version + 1) }
        return { operations: [operation], result: { state: taken.to, from, version: version + 1 } }
      },
    )
    return Object.freeze({ ...result, updatedAt: time })
  }

  async current(scope: S, name: string): Promise<MachineState> {
    const { state } = placesOf(this.#scopeOf(scope), name)
    return stateOf(found(name, await this.#session.get(state.scope, state.tag, state.key)))
  }

  async isTerminal(scope: S, name: string): Promise<boolean> {
    const { state, definition } = await this.#both(scope, name)
    return definition.terminal.includes(state)
  }

  async can(scope: S, name: string, event: string, payload?: unknown): Promise<boolean> {
    checkText('event', event, { bytesMax: NAME_BYTES_MAX })
    const input = checkPayload(payload)
    const { state, definition } = await this.#both(scope, name)
    return this.#transition(definition, state, event, input) !== undefined
  }

  async definition(scope: S, name: string, version?: number): Promise<StoredDefinition> {
    const bytes = this.#scopeOf(scope)
    const place =
      version === undefined
        ? placesOf(bytes, name).definition
        : versionPlace(bytes, name, checkWhole('version', version))
    const entry = await this.#session.get(bytes, place.tag, place.key)
    if (entry === undefined && version !== undefined) {
      const message = `the machine ${quote(name)} has no definition ${version}`
      throw new AnnalsError('MACHINE_NOT_FOUND', message, { name, version })
    }
    return definitionOf(found(name, entry))
  }

  async toMermaid(scope: S, name: string): Promise<string> {
    return drawMachine(await this.definition(scope, name))
  }

  of<T extends MachineDefinition>(): MachinesCalls<[scope: S], T> {
    return this as MachinesCalls<[scope: S], MachineDefinition> as MachinesCalls<[scope: S], T>
  }

  async #both(scope: S, name: string): Promise<{ state: string; definition: StoredDefinition }> {
    const places = placesOf(this.#scopeOf(scope), name)
    return this.#session.view(async reader => {
      const [state, definition] = await Promise.all(
        [places.state, places.definition].map(({ scope: at, tag, key }) => reader.get(at, tag, key)),
      )
      return {
        state: stateOf(found(name, state)).state,
        definition: definitionOf(found(name, definition)),
      }
    })
  }

  #transition(
    { transitions }: StoredDefinition,
    state: string,
    event: string,
    payload: Value | undefined,
  ): MachineTransition | undefined {
    return transitions.find(
      ({ from, event: on, guard }) =>
        from === state &&
        on === event &&
        (guard === undefined || this.#agrees(guard, { state, event, payload })),
    )
  }

  /** Whether a guard allows an event, for an error message. A guard may throw on another event's payload, which counts as no. */
  #wouldTake(
    definition: StoredDefinition,
    state: string,
    event: string,
    payload: Value | undefined,
  ): boolean {
    try {
      return this.#transition(definition, state, event, payload) !== undefined
    } catch {
      return false
    }
  }

  #agrees(name: string, input: Parameters<Guard>[0]): boolean {
    const guard = Object.hasOwn(this.#guards, name) ? this.#guards[name] : undefined
    if (guard === undefined) {
      const message = `the machine needs the guard ${quote(name)}: pass it to open({ guards })`
      throw new AnnalsError('INVALID_OPERATION', message, { guard: name })
    }
    const answer: unknown = guard(Object.freeze(input))
    if (typeof answer === 'boolean') return answer
    const message = `the guard ${quote(name)} must return true or false, and must not be async`
    throw new AnnalsError('INVALID_OPERATION', message, { guard: name })
  }

  /** The error for an event without a transition, with the events that are allowed now. */
  #refusal(
    name: string,
    definition: StoredDefinition,
    state: string,
    event: string,
    payload: Value | undefined,
  ): AnnalsError {
    const events = definition.transitions.filter(({ from }) => from === state).map(each => each.event)
    const allowed = [...new Set(events)].filter(each => this.#wouldTake(definition, state, each, payload))
    const message = `the machine ${quote(name)} is in ${quote(state)}, where ${quote(event)} is not allowed`
    return new AnnalsError('INVALID_TRANSITION', message, { name, state, event, allowed })
  }
}

const scoped = boundForm<ScopedMachines>(MachineStore)

/** The machines of one scope. */
export function scopedMachines(session: Session, scope: ByteString, guards: Guards): ScopedMachines {
  return scoped(new MachineStore(session, () => scope, guards))
}

// Keys: 's' + name is the state, 'd' + name the definition, 'v' + name + 00 + version each version of it.

function placesOf(scope: ByteString, name: string): { readonly state: Place; readonly definition: Place } {
  const key = checkText('name', name, { bytesMax: NAME_BYTES_MAX })
  return { state: { scope, tag: TAG, key: `s${key}` }, definition: { scope, tag: TAG, key: `d${key}` } }
}

function versionPlace(scope: ByteString, name: string, version: number): Place {
  const key = checkText('name', name, { bytesMax: NAME_BYTES_MAX })
  return { scope, tag: TAG, key: `v${key}\0${u64(version)}` }
}

function encodeState(state: string, version: number): ByteString {
  return encodeValue({ state, version })
}

function stateOf({ value, time }: Entry): MachineState {
  const { state, version } = decodeValue<{ state: string; version: number }>(value)
  return Object.freeze({ state, version, updatedAt: time })
}

function definitionOf({ value }: Entry): StoredDefinition {
  return decodeValue<StoredDefinition>(value)
}

function found(name: string, entry: Entry | undefined): Entry {
  if (entry !== undefined) return entry
  const message = `there is no machine ${quote(name)}: create it with define`
  throw new AnnalsError('MACHINE_NOT_FOUND', message, { name })
}

/** The payload for a guard: a frozen copy. */
function checkPayload(payload: unknown): Value | undefined {
  return payload === undefined ? undefined : decodeValue(encodeValue(payload))
}

function quote(text: string): string {
  return JSON.stringify(text)
}
