import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { checkOptions } from '../core/options.ts'
import { checkText } from '../core/text.ts'
import type { Value } from '../core/value.ts'

const STATE_BYTES_MAX = 256

/** One allowed change of state. */
export interface MachineTransition {
  /** The state that the transition leaves. */
  readonly from: string
  /** The event that triggers the transition. */
  readonly event: string
  /** The state that the transition enters. It may be the same state. */
  readonly to: string
  /** The name of a guard passed to `open({ guards })`. The transition is taken only if the guard returns true. */
  readonly guard?: string
}

/** The states and transitions of a machine. Its states are all names in `initial`, `terminal` and `transitions`. */
export interface MachineDefinition {
  /** The state of a new machine. */
  readonly initial: string
  /**
   * The terminal states, which no transition may leave. By default, all states that no transition leaves. With `[]`, there is
   * none.
   */
  readonly terminal?: readonly string[]
  /** Among transitions from one state for one event, the first whose guard returns true is taken. */
  readonly transitions: readonly MachineTransition[]
}

/** The names of a definition's states. */
export type StateOf<D extends MachineDefinition> =
  | D['initial']
  | D['transitions'][number]['from' | 'to']
  | (D extends { readonly terminal: readonly (infer T extends string)[] } ? T : never)

/** The names of a definition's events. */
export type EventNameOf<D extends MachineDefinition> = D['transitions'][number]['event']

/** Decides whether a transition is taken. It must be pure and synchronous, because it may run several times. */
export type Guard = (input: {
  readonly state: string
  readonly event: string
  readonly payload: Value | undefined
}) => boolean

/** Checks a definition, and returns it with all defaults filled in. */
export function checkDefinition(
  definition: MachineDefinition,
  guards: Readonly<Record<string, Guard>>,
): Required<MachineDefinition> {
  checkOptions('a definition', definition, ['initial', 'terminal', 'transitions'])
  const { initial } = definition
  checkName('initial', initial)
  if (!Array.isArray(definition.transitions)) refuse('transitions must be an array')
  // Unlike `map`, `Array.from` does not skip holes.
  const transitions = Array.from(definition.transitions, (transition: MachineTransition) =>
    checkTransition(transition, guards),
  )
  refuseUnreachable(transitions)
  const left = new Set(transitions.map(({ from }) => from))
  const states = statesOf(initial, transitions)
  const { terminal = states.filter(state => !left.has(state)) } = definition
  if (!Array.isArray(terminal)) refuse('terminal must be an array of states')
  for (const state of terminal) {
    checkName('terminal', state)
    if (left.has(state)) refuse(`${quote(state)} is terminal, but a transition leaves it`, { state })
  }
  return { initial, terminal: [...new Set(terminal)], transitions }
}

/** All states of a definition. */
export function statesOf(
  initial: string,
  transitions: readonly MachineTransition[],
  terminal: readonly string[] = [],
): string[] {
  return [...new Set([initial, ...transitions.flatMap(({ from, to }) => [from, to]), ...terminal])]
}

/** A Mermaid state diagram. States are drawn under aliases, because a name may be a keyword of Mermaid or invalid there. */
export function drawMachine({ initial, terminal, transitions }: Required<MachineDefinition>): string {
  const states = statesOf(initial, transitions, terminal)
  const aliasOf = new Map(states.map((state, i) => [state, `s${i}`]))
  const lines = states.map(state => `  state "${escapeText(state)}" as ${aliasOf.get(state)}`)
  lines.push(`  [*] --> ${aliasOf.get(initial)}`)
  for (const { from, event, to, guard } of transitions) {
    const condition = guard === undefined ? '' : ` [${escapeText(guard)}]`
    lines.push(`  ${aliasOf.get(from)} --> ${aliasOf.get(to)}: ${escapeText(event)}${condition}`)
  }
  for (const state of terminal) lines.push(`  ${aliasOf.get(state)} --> [*]`)
  return `stateDiagram-v2\n${lines.join('\n')}\n`
}

/** Escapes text that Mermaid would read as syntax: comments, styles, `[[fork]]`, and `direction TB` anywhere in a line. */
function escapeText(text: string): string {
  const escapeChar = (char: string): string => `#${char.codePointAt(0)};`
  return text
    .replace(/[^\p{L}\p{N}\p{M} _.,()/-]/gu, escapeChar)
    .replace(/direction(?= )/gi, word => escapeChar(word) + word.slice(1))
}

function checkTransition(
  transition: MachineTransition,
  guards: Readonly<Record<string, Guard>>,
): MachineTransition {
  checkOptions('a transition', transition, ['from', 'event', 'to', 'guard'])
  const { from, event, to, guard } = transition
  checkName('from', from)
  checkName('event', event)
  checkName('to', to)
  if (guard === undefined) return { from, event, to }
  checkName('guard', guard)
  if (!Object.hasOwn(guards, guard)) {
    refuse(`there is no guard ${quote(guard)}: pass the function to open({ guards })`, { guard })
  }
  return { from, event, to, guard }
}

/** A transition that follows one without a guard, for the same state and event, is never taken. */
function refuseUnreachable(transitions: readonly MachineTransition[]): void {
  const decided = new Set<string>()
  for (const { from, event, guard } of transitions) {
    const id = JSON.stringify([from, event])
    if (decided.has(id)) {
      refuse(
        `from ${quote(from)} on ${quote(event)} there is more than one transition without a guard before it`,
        {
          from,
          event,
        },
      )
    }
    if (guard === undefined) decided.add(id)
  }
}

function checkName(name: string, text: string): void {
  checkText(name, text, { bytesMax: STATE_BYTES_MAX })
}

function quote(text: string): string {
  return JSON.stringify(text)
}

function refuse(why: string, details: ErrorDetails = {}): never {
  throw new AnnalsError('INVALID_ARGUMENT', `invalid machine definition: ${why}`, {
    name: 'definition',
    ...details,
  })
}
