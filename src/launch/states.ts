import { AnnalsError } from '../core/errors.ts'

/**
 * The rule of a state. A run that died in a `stable` state continues there. From a `transitional` state it rewinds to
 * `rewindTo` first. In a `terminal` state it has ended.
 */
export type StateRule<S extends string = string> =
  | { readonly kind: 'stable'; readonly next: readonly S[] }
  | { readonly kind: 'transitional'; readonly next: readonly S[]; readonly rewindTo: S }
  | { readonly kind: 'terminal' }

/** The states of a run as data: which state may follow which, and where a run that died continues. */
export interface StateModel<S extends string = string> {
  /** The first state. */
  readonly initial: S
  /** The state of a run that has completed. */
  readonly done: S
  /** The state of a run that has failed. Every state that is not terminal may lead there. */
  readonly failed: S
  /** The state of a run that was cancelled. Every state that is not terminal may lead there. */
  readonly cancelled: S
  /** The rule of each state. */
  readonly states: { readonly [state in S]: StateRule<S> }
}

/** The states of a model. */
export type StateOf<M extends StateModel> = keyof M['states'] & string
/** The states of a model that have a node. */
export type ActiveStateOf<M extends StateModel> = Exclude<
  StateOf<M>,
  M['done'] | M['failed'] | M['cancelled']
>
/** The states that the node of a state may return. */
export type NextStateOf<M extends StateModel, S extends StateOf<M>> = M['states'][S] extends {
  readonly next: readonly (infer N)[]
}
  ? N & string
  : never

/** The rule of a state; undefined for a name that the model does not have. */
export function ruleOf(model: StateModel, state: string): StateRule | undefined {
  return Object.hasOwn(model.states, state) ? model.states[state] : undefined
}

/** Whether a run in this state has ended. */
export function isTerminal(model: StateModel, state: string): boolean {
  return ruleOf(model, state)?.kind === 'terminal'
}

/** The state in which a run that died in this state continues. */
export function stableStateOf(model: StateModel, state: string): string {
  const rule = ruleOf(model, state)
  return rule?.kind === 'transitional' ? rule.rewindTo : state
}

/** Whether a run may move from one state to another. */
export function isLegalTransition(model: StateModel, from: string, to: string): boolean {
  const rule = ruleOf(model, from)
  if (rule === undefined || rule.kind === 'terminal') return false
  return to === model.failed || to === model.cancelled || rule.next.includes(to)
}

/** Throws `INVALID_ARGUMENT` for a model in which a run could get stuck. */
export function checkStates(model: StateModel): void {
  const { initial, done, failed, cancelled, states } = model
  for (const [role, state] of Object.entries({ initial, done, failed, cancelled })) {
    if (ruleOf(model, state) === undefined) refuse(state, `is the ${role} state, but not one of the states`)
  }
  if (new Set([done, failed, cancelled]).size !== 3)
    refuse(done, 'is used for two of done, failed and cancelled')
  for (const state of [done, failed, cancelled]) {
    if (!isTerminal(model, state)) refuse(state, 'must be terminal')
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
    if (ruleOf(model, next) === undefined) refuse(state, `leads to ${next}, which is not a state`)
  }
  if (!reachableFrom(model, state).has(model.done)) refuse(state, `never leads to ${model.done}`)
  if (rule.kind === 'stable') return
  if (rule.kind !== 'transitional') refuse(state, 'is neither stable, transitional nor terminal')
  const back = rule.rewindTo as string | undefined
  if (back === undefined) refuse(state, 'is transitional: give it a rewindTo')
  if (ruleOf(model, back)?.kind !== 'stable') refuse(state, `rewinds to ${back}, which is not a stable state`)
  if (!reachableFrom(model, back).has(state)) {
    refuse(state, `rewinds to ${back}, from which it can't be reached`)
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
