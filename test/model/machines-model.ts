import type { Guard, MachineDefinition, MachineTransition, Value } from '../../src/index.ts'
import { checkWritable, Refusal, readPoint, type Stamp, type View, wrote } from './scope-model.ts'
import { show } from './steps.ts'

export const GUARDS: Readonly<Record<string, Guard>> = { isPaid: ({ payload }) => payload === 'paid' }

type Definition = Required<MachineDefinition>

export interface MachineRecord {
  readonly state: {
    readonly state: string
    readonly version: number
    readonly stamp: Stamp
    readonly time: number
  }
  /** All versions of the definition, the newest last. */
  readonly definitions: readonly { readonly definition: Definition; readonly stamp: Stamp }[]
}

export const machinesModel = {
  define(view: View, name: string, given: MachineDefinition): unknown {
    checkWritable(view)
    const machine = find(view, name, 'state', 'definition')
    const definition = complete(given)
    if (machine === undefined) {
      set(view, name, definition.initial, 1, [{ definition, stamp: view.stamp }])
      return { state: definition.initial, version: 1, updatedAt: view.now }
    }
    const { state, definitions } = machine
    if (!statesOf(definition).includes(state.state)) throw new Refusal('INVALID_OPERATION')
    if (show(definitions.at(-1)?.definition) !== show(definition)) {
      const added = [...definitions, { definition, stamp: view.stamp }]
      view.scope.machines.set(name, { state, definitions: added })
      wrote(view, `machine definition ${name}`)
      wrote(view, `machine version ${added.length} ${name}`)
    }
    return { state: state.state, version: state.version, updatedAt: state.time }
  },

  send(view: View, name: string, event: string, payload?: Value): unknown {
    checkWritable(view)
    const { state, definitions } = existing(find(view, name, 'state', 'definition'))
    const taken = transitionOf(definitions.at(-1)?.definition, state.state, event, payload)
    if (taken === undefined) throw new Refusal('INVALID_TRANSITION')
    set(view, name, taken.to, state.version + 1, definitions)
    return { state: taken.to, from: state.state, version: state.version + 1, updatedAt: view.now }
  },

  current(view: View, name: string): unknown {
    const { state, version, time } = existing(find(view, name, 'state')).state
    return { state, version, updatedAt: time }
  },

  isTerminal(view: View, name: string): boolean {
    const { state, definitions } = existing(find(view, name, 'state', 'definition'))
    return definitions.at(-1)?.definition.terminal.includes(state.state) === true
  },

  can(view: View, name: string, event: string, payload?: Value): boolean {
    const { state, definitions } = existing(find(view, name, 'state', 'definition'))
    return transitionOf(definitions.at(-1)?.definition, state.state, event, payload) !== undefined
  },

  definition(view: View, name: string, version?: number): unknown {
    if (version === undefined) {
      const { definitions } = existing(find(view, name, 'definition'))
      return { ...definitions.at(-1)?.definition, version: definitions.length }
    }
    readPoint(
      view,
      `machine version ${version} ${name}`,
      ({ machines }) => machines.get(name)?.definitions[version - 1]?.stamp ?? 0,
    )
    const found = view.scope.machines.get(name)?.definitions[version - 1]
    if (found === undefined) throw new Refusal('MACHINE_NOT_FOUND')
    return { ...found.definition, version }
  },
}

function find(view: View, name: string, ...parts: ('state' | 'definition')[]): MachineRecord | undefined {
  for (const part of parts) {
    readPoint(view, `machine ${part} ${name}`, ({ machines }) => {
      const machine = machines.get(name)
      return (part === 'state' ? machine?.state : machine?.definitions.at(-1))?.stamp ?? 0
    })
  }
  return view.scope.machines.get(name)
}

function existing(machine: MachineRecord | undefined): MachineRecord {
  if (machine === undefined) throw new Refusal('MACHINE_NOT_FOUND')
  return machine
}

function set(
  view: View,
  name: string,
  state: string,
  version: number,
  definitions: MachineRecord['definitions'],
): void {
  const { stamp, time } = view
  const isNew = !view.scope.machines.has(name)
  view.scope.machines.set(name, { state: { state, version, stamp, time }, definitions })
  wrote(view, `machine state ${name}`)
  if (!isNew) return
  wrote(view, `machine definition ${name}`)
  wrote(view, `machine version 1 ${name}`)
}

function transitionOf(
  definition: Definition | undefined,
  state: string,
  event: string,
  payload: Value | undefined,
): MachineTransition | undefined {
  return definition?.transitions.find(
    ({ from, event: on, guard }) =>
      from === state && on === event && (guard === undefined || GUARDS[guard]({ state, event, payload })),
  )
}

function statesOf({ initial, transitions, terminal }: MachineDefinition): string[] {
  return [...new Set([initial, ...transitions.flatMap(({ from, to }) => [from, to]), ...(terminal ?? [])])]
}

function complete(given: MachineDefinition): Definition {
  const left = given.transitions.map(({ from }) => from)
  const terminal = given.terminal ?? statesOf(given).filter(state => !left.includes(state))
  return { initial: given.initial, terminal, transitions: given.transitions }
}
