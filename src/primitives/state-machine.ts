import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkText } from '../core/text.ts'
import { decodeValue, encodeValue, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import type { Session } from '../engine/session.ts'
import type { Entry, Place, Put } from '../engine/storage.ts'
import {
  checkDefinition,
  drawMachine,
  type Guard,
  type MachineDefinition,
  type MachineTransition,
  statesOf,
} from './machine-definition.ts'

const TAG = TAGS.machine
const NAME_BYTES_MAX = 1024

/** A machine's state as it was read. */
export interface MachineState {
  /** The name of the current state. */
  readonly state: string
  /** 1 after `define`, and one more with each transition. */
  readonly version: number
  /** When the machine was created or last took a transition, in milliseconds since 1970. */
  readonly updatedAt: number
}

/** The state after a transition, and the one before it. */
export interface MachineStep extends MachineState {
  /** The state before the transition. */
  readonly from: string
}

/** A definition as it is stored, with defaults filled in. */
export interface StoredDefinition extends Required<MachineDefinition> {
  /** 1 for the first definition, and one more with each change. */
  readonly version: number
}

/** State machines: cells that change only as their definition allows. Every version of the definition is stored with the run. */
export class Machines {
  readonly #database: Database
  readonly #scopeOf: (scope: Scope) => ByteString
  readonly #guards: Readonly<Record<string, Guard>>

  /** @internal Use `open`. */
  constructor(
    database: Database,
    scopeOf: (scope: Scope) => ByteString,
    guards: Readonly<Record<string, Guard>>,
  ) {
    this.#database = database
    this.#scopeOf = scopeOf
    this.#guards = guards
  }

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
  async define(scope: Scope, name: string, definition: MachineDefinition): Promise<MachineState> {
    return this.#at(scope).define(name, definition)
  }

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
  async send(scope: Scope, name: string, event: string, payload?: Value): Promise<MachineStep> {
    return this.#at(scope).send(name, event, payload)
  }

  /**
   * Returns the machine's state.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [] })
   * const { state } = await db.machines.current(run, 'light')
   * state // → 'off'
   */
  async current(scope: Scope, name: string): Promise<MachineState> {
    return this.#at(scope).current(name)
  }

  /**
   * Returns whether the machine is in a terminal state: one that its definition lists in `terminal`, or, without that list,
   * one that no transition leaves.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [] })
   * await db.machines.isTerminal(run, 'light') // → true
   */
  async isTerminal(scope: Scope, name: string): Promise<boolean> {
    return this.#at(scope).isTerminal(name)
  }

  /**
   * Returns whether `send` would take a transition now.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [{ from: 'off', event: 'flip', to: 'on' }] })
   * await db.machines.can(run, 'light', 'flip') // → true
   * await db.machines.can(run, 'light', 'smash') // → false
   */
  async can(scope: Scope, name: string, event: string, payload?: Value): Promise<boolean> {
    return this.#at(scope).can(name, event, payload)
  }

  /**
   * Returns the definition, or an earlier version of it.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [] })
   * const { version, initial } = await db.machines.definition(run, 'light')
   * version // → 1
   * initial // → 'off'
   */
  async definition(scope: Scope, name: string, version?: number): Promise<StoredDefinition> {
    return this.#at(scope).definition(name, version)
  }

  /**
   * Returns the definition as a Mermaid diagram.
   * @example
   * await db.machines.define(run, 'light', { initial: 'off', transitions: [{ from: 'off', event: 'flip', to: 'on' }] })
   * const drawing = await db.machines.toMermaid(run, 'light')
   * drawing.split('\n')[1] // → '  state "off" as s0'
   * drawing.split('\n')[4] // → '  s0 --> s1: flip'
   */
  async toMermaid(scope: Scope, name: string): Promise<string> {
    return this.#at(scope).toMermaid(name)
  }

  #at(scope: Scope): ScopedMachines {
    return new ScopedMachines(this.#database, this.#scopeOf(scope), this.#guards)
  }
}

/** The machines of one scope. In a transaction, reads see the transaction's own writes. */
export class ScopedMachines {
  readonly #session: Session
  readonly #scope: ByteString
  readonly #guards: Readonly<Record<string, Guard>>

  /** @internal Use `transaction` or `run`. */
  constructor(session: Session, scope: ByteString, guards: Readonly<Record<string, Guard>>) {
    this.#session = session
    this.#scope = scope
    this.#guards = guards
  }

  /** Creates a machine in its initial state, or changes the definition of an existing one, which keeps its state. */
  async define(name: string, definition: MachineDefinition): Promise<MachineState> {
    const places = this.#places(name)
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
        const value = encodeValue({ ...checked, version } as unknown as Value)
        if (
          old !== undefined &&
          encodeValue({ ...checked, version: old.version } as unknown as Value) === definitionEntry?.value
        ) {
          return { operations: [], result: before }
        }
        const operations: Put[] = [
          { op: 'put', ...places.definition, value },
          { op: 'put', ...this.#versionPlace(name, version), value },
        ]
        if (before === undefined)
          operations.push({ op: 'put', ...places.state, value: encodeState(initial, 1) })
        return { operations, result: before }
      },
    )
    return result ?? Object.freeze({ state: initial, version: 1, updatedAt: time })
  }

  /** Takes the transition for this event. Throws `INVALID_TRANSITION` if there is none. */
  async send(name: string, event: string, payload?: Value): Promise<MachineStep> {
    const places = this.#places(name)
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

  /** Returns the machine's state. Throws `MACHINE_NOT_FOUND` if the machine is not defined. */
  async current(name: string): Promise<MachineState> {
    const { scope, tag, key } = this.#places(name).state
    return stateOf(found(name, await this.#session.get(scope, tag, key)))
  }

  /** Returns whether the machine is in a terminal state. See {@link MachineDefinition.terminal}. */
  async isTerminal(name: string): Promise<boolean> {
    const { state, definition } = await this.#both(name)
    return definition.terminal.includes(state)
  }

  /** Returns whether `send` would take a transition now. */
  async can(name: string, event: string, payload?: Value): Promise<boolean> {
    checkText('event', event, { bytesMax: NAME_BYTES_MAX })
    const input = checkPayload(payload)
    const { state, definition } = await this.#both(name)
    return this.#transition(definition, state, event, input) !== undefined
  }

  /** Returns the definition, or an earlier version of it. */
  async definition(name: string, version?: number): Promise<StoredDefinition> {
    const places = this.#places(name)
    const { scope, tag, key } =
      version === undefined ? places.definition : this.#versionPlace(name, checkWhole('version', version))
    const entry = await this.#session.get(scope, tag, key)
    if (entry === undefined && version !== undefined) {
      const message = `the machine ${quote(name)} has no definition ${version}`
      throw new AnnalsError('MACHINE_NOT_FOUND', message, { name, version })
    }
    return definitionOf(found(name, entry))
  }

  /** Returns the definition as a Mermaid state diagram. */
  async toMermaid(name: string): Promise<string> {
    return drawMachine(await this.definition(name))
  }

  async #both(name: string): Promise<{ state: string; definition: StoredDefinition }> {
    const places = this.#places(name)
    return this.#session.view(async reader => {
      const [state, definition] = await Promise.all(
        [places.state, places.definition].map(({ scope, tag, key }) => reader.get(scope, tag, key)),
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

  // Keys: 's' + name is the state, 'd' + name the definition, 'v' + name + 00 + version each version of it.

  #places(name: string): { state: Place; definition: Place } {
    const key = checkText('name', name, { bytesMax: NAME_BYTES_MAX })
    return { state: this.#place(`s${key}`), definition: this.#place(`d${key}`) }
  }

  #versionPlace(name: string, version: number): Place {
    return this.#place(`v${checkText('name', name, { bytesMax: NAME_BYTES_MAX })}\0${u64(version)}`)
  }

  #place(key: ByteString): Place {
    return { scope: this.#scope, tag: TAG, key }
  }
}

function encodeState(state: string, version: number): ByteString {
  return encodeValue({ state, version })
}

function stateOf({ value, time }: Entry): MachineState {
  const { state, version } = decodeValue(value) as { state: string; version: number }
  return Object.freeze({ state, version, updatedAt: time })
}

function definitionOf({ value }: Entry): StoredDefinition {
  return decodeValue(value) as unknown as StoredDefinition
}

function found(name: string, entry: Entry | undefined): Entry {
  if (entry !== undefined) return entry
  const message = `there is no machine ${quote(name)}: create it with define`
  throw new AnnalsError('MACHINE_NOT_FOUND', message, { name })
}

/** The payload for a guard: a frozen copy. */
function checkPayload(payload: Value | undefined): Value | undefined {
  return payload === undefined ? undefined : decodeValue(encodeValue(payload))
}

function quote(text: string): string {
  return JSON.stringify(text)
}
