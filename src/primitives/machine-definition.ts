import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { checkOptions } from '../core/options.ts'
import { checkText } from '../core/text.ts'
import type { Value } from '../core/value.ts'

const STATE_BYTES_MAX = 256

export interface MachineTransition {
  readonly from: string
  readonly event: string
  readonly to: string
  /** The name of a function given to `open({ guards })`: the transition is taken only if it returns true. */
  readonly guard?: string
}

export interface MachineDefinition {
  readonly initial: string
  /**
   * The states in which the machine is at its end; no transition may leave them. Without it, all that no transition
   * leaves; what is given is all there are, so with `[]` there is none.
   */
  readonly terminal?: readonly string[]
  /** Of several from the same state on the same event, the first whose guard agrees is taken. */
  readonly transitions: readonly MachineTransition[]
}

/** Decides whether a transition is taken. It must be pure and answer at once: it may run several times. */
export type Guard = (input: {
  readonly state: string
  readonly event: string
  readonly payload: Value | undefined
}) => boolean

/** A definition that can work, with everything said that it leaves to be understood. */
export function checkDefinition(
  definition: MachineDefinition,
  guards: Readonly<Record<string, Guard>>,
): Required<MachineDefinition> {
  checkOptions('a definition', definition, ['initial', 'terminal', 'transitions'])
  const { initial } = definition
  checkName('initial', initial)
  if (!Array.isArray(definition.transitions)) refuse('transitions must be an array')
  // Not map, which passes over holes.
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

/** Every state that a definition names. */
export function statesOf(
  initial: string,
  transitions: readonly MachineTransition[],
  terminal: readonly string[] = [],
): string[] {
  return [...new Set([initial, ...transitions.flatMap(({ from, to }) => [from, to]), ...terminal])]
}

/**
 * A Mermaid state diagram. No state is drawn by its own name: it may be a word of Mermaid's, or nothing that Mermaid takes
 * for a name, and an alias beside names could be somebody's name.
 */
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

/**
 * Mermaid's own way to write what it would take for syntax: comments, styles, `[[fork]]`. `direction TB` it finds anywhere
 * in a line.
 */
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
    refuse(`nobody knows the guard ${quote(guard)}: give it to open({ guards })`, { guard })
  }
  return { from, event, to, guard }
}

/** Behind a transition without a guard, another one for the same event is never taken. */
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
  throw new AnnalsError('INVALID_ARGUMENT', `a machine can't be defined so: ${why}`, {
    name: 'definition',
    ...details,
  })
}
