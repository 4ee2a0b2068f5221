import { AnnalsError } from '../core/errors.ts'

/**
 * Which states a run can be in, what may follow what, and where a run that
 * died goes on. Rules as data: the orchestrator knows no state by its name.
 */

/**
 * `stable`: a run that died there goes on there. `transitional`: it goes back to `rewindTo` first. `terminal`: it has ended.
 */
export type StateRule<S extends string = string> =
  | { readonly kind: 'stable'; readonly next: readonly S[] }
  | { readonly kind: 'transitional'; readonly next: readonly S[]; readonly rewindTo: S }
  | { readonly kind: 'terminal' }

export interface StateModel<S extends string = string> {
  /** Where a run begins. */
  readonly initial: S
  /** The three ways in which a run ends. From every state that is not terminal a run may fail and be cancelled. */
  readonly done: S
  readonly failed: S
  readonly cancelled: S
  readonly states: { readonly [state in S]: StateRule<S> }
}

/** The states of a model. */
export type StateOf<M extends StateModel> = keyof M['states'] & string
/** Those in which there is something to do. */
export type ActiveStateOf<M extends StateModel> = Exclude<
  StateOf<M>,
  M['done'] | M['failed'] | M['cancelled']
>
/** Those to which a node of this state may lead. */
export type NextStateOf<M extends StateModel, S extends StateOf<M>> = M['states'][S] extends {
  readonly next: readonly (infer N)[]
}
  ? N & string
  : never

/** The rule of a state; undefined for a name that the model does not have. */
export function ruleOf(model: StateModel, state: string): StateRule | undefined {
  return Object.hasOwn(model.states, state) ? model.states[state] : undefined
}

export function isTerminal(model: StateModel, state: string): boolean {
  return ruleOf(model, state)?.kind === 'terminal'
}

/** Where a run that died in this state goes on. */
export function stableStateOf(model: StateModel, state: string): string {
  const rule = ruleOf(model, state)
  return rule?.kind === 'transitional' ? rule.rewindTo : state
}

export function isLegalTransition(model: StateModel, from: string, to: string): boolean {
  const rule = ruleOf(model, from)
  if (rule === undefined || rule.kind === 'terminal') return false
  return to === model.failed || to === model.cancelled || rule.next.includes(to)
}

/** Refuses a model in which a run could get stuck. */
export function checkStates(model: StateModel): void {
  const { initial, done, failed, cancelled, states } = model
  for (const [role, state] of Object.entries({ initial, done, failed, cancelled })) {
    if (ruleOf(model, state) === undefined) refuse(state, `is the ${role} state, but none of the states`)
  }
  if (new Set([done, failed, cancelled]).size !== 3) refuse(done, 'ends a run in more than one way')
  for (const state of [done, failed, cancelled]) {
    if (!isTerminal(model, state)) refuse(state, 'ends a run and must be terminal')
  }
  const reached = reachableFrom(model, initial).add(failed).add(cancelled)
  for (const state of Object.keys(states)) checkRule(model, state, reached)
}

function checkRule(model: StateModel, state: string, reached: ReadonlySet<string>): void {
  const rule = model.states[state]
  if (!reached.has(state)) refuse(state, `can't be reached from ${model.initial}`)
  if (rule.kind === 'terminal') {
    if (![model.done, model.failed, model.cancelled].includes(state)) {
      refuse(state, 'is terminal, but neither done, failed nor cancelled')
    }
    return
  }
  for (const next of rule.next) {
    if (ruleOf(model, next) === undefined) refuse(state, `leads to ${next}, which is no state`)
  }
  if (!reachableFrom(model, state).has(model.done)) refuse(state, `never leads to ${model.done}`)
  if (rule.kind === 'stable') return
  if (rule.kind !== 'transitional') refuse(state, 'is neither stable, transitional nor terminal')
  const back = rule.rewindTo as string | undefined
  if (back === undefined) refuse(state, 'is transitional and has no way back: give it a rewindTo')
  if (ruleOf(model, back)?.kind !== 'stable') refuse(state, `goes back to ${back}, which is no stable state`)
  if (!reachableFrom(model, back).has(state)) {
    refuse(state, `goes back to ${back}, from where it is not reached`)
  }
}

function reachableFrom(model: StateModel, start: string): Set<string> {
  const reached = new Set([start])
  for (const state of reached) {
    const rule = ruleOf(model, state)
    if (rule === undefined || rule.kind === 'terminal') continue
    for (const next of rule.next ?? []) reached.add(next)
  }
  return reached
}

function refuse(state: string, why: string): never {
  throw new AnnalsError('INVALID_ARGUMENT', `the state ${state} ${why}`, { name: 'states', state })
}
