import { AnnalsError } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import type { AnyNodeContext, FixInput, GateContext, WorkerContext } from './context.ts'
import { DOCS_STATES, type DocsStates } from './docs/pipeline.ts'
import type { Issue, IssueLocation, Severity } from './events.ts'
import {
  type ActiveStateOf,
  checkStates,
  isTerminal,
  type NextStateOf,
  ruleOf,
  type StateModel,
} from './states.ts'

/** What a launch consists of, typed from what its author wrote. */

export interface WorkerDefinition<Input, Output> {
  /** What it returns is kept, and is the answer whenever the same work is asked for again. */
  run(input: Input, context: WorkerContext): Output | Promise<Output>
  /** How often it is tried; 3 without it. An error with `retryable: false` is not tried again. */
  readonly attemptsMax?: number
  /** Before the second try; twice as long before each further one. 100 without it. */
  readonly backoffMs?: number
  /** How long a try may take; as long as it likes without it. */
  readonly timeoutMs?: number
  /** How many of it may run at once; as many as the launch lets without it. */
  readonly concurrency?: number
}

/** An issue as a gate gives it: the gate's name, and an id made of the rest, are added. */
export interface FoundIssue<Code extends string = string> {
  readonly severity: Severity
  readonly message: string
  readonly error_code?: Code
  readonly files?: readonly string[]
  readonly location?: IssueLocation
  readonly suggested_fix?: string
}

export interface GateDefinition<Code extends string = string> {
  run(context: GateContext): readonly FoundIssue<Code>[] | Promise<readonly FoundIssue<Code>[]>
  readonly timeoutMs?: number
}

export type Workers = Readonly<Record<string, WorkerDefinition<never, unknown>>>
export type Gates = Readonly<Record<string, GateDefinition<string>>>

type InputOf<W> = W extends WorkerDefinition<infer Input, infer _> ? Input : never
type OutputOf<W> = W extends WorkerDefinition<infer _, infer Output> ? Awaited<Output> : never
type CodeOf<G extends Gates> = G[keyof G] extends GateDefinition<infer Code> ? Code : never
/** The workers that can mend an issue. */
type FixerOf<W extends Workers> = {
  [K in keyof W & string]: FixInput extends InputOf<W[K]> ? K : never
}[keyof W & string]

interface WorkScope {
  readonly scope?: string
  readonly inputs?: readonly string[]
}
type WorkArguments<Input> = [undefined] extends [Input]
  ? [options?: WorkScope & { readonly input?: Input }]
  : [options: WorkScope & { readonly input: Input }]

export interface Validation<G extends Gates> {
  /** No open issue is an error or a blocker. */
  readonly ok: boolean
  /** Those that are open. */
  readonly issues: readonly (Issue & { readonly gate: keyof G & string; readonly error_code?: CodeOf<G> })[]
}

/** What a node works with. */
export interface NodeContext<W extends Workers, G extends Gates>
  extends Omit<AnyNodeContext, 'work' | 'validate'> {
  /**
   * Has a worker do something. What it has done already, with the same scope, input and artifacts, is not done again: the
   * answer is the same. Retries are made here; what comes out is the failure of the last one.
   */
  work<K extends keyof W & string>(
    worker: K,
    ...options: WorkArguments<InputOf<W[K]>>
  ): Promise<OutputOf<W[K]>>
  /** Runs all gates, opens and resolves issues, and writes the artifact `validation_report`. */
  validate(): Promise<Validation<G>>
}

/** What is to be done in a state. It answers with the state that follows. */
export type NodeDefinition<M extends StateModel, W extends Workers, G extends Gates> = {
  [S in ActiveStateOf<M>]: {
    readonly name: string
    readonly state: S
    // A promise alone: of `X | Promise<X>` the compiler would infer any text for an async function.
    run(context: NodeContext<W, G>): Promise<NextStateOf<M, S>>
  }
}[ActiveStateOf<M>]

export interface LaunchDefinition<M extends StateModel, W extends Workers, G extends Gates> {
  readonly name: string
  readonly version: string
  /** `DOCS_STATES` without it. */
  readonly states?: M
  readonly workers: W
  readonly gates?: G
  /** One for each state that is not terminal. */
  readonly nodes: readonly NodeDefinition<M, W, G>[]
  /** The worker that `fix` has mend an issue; its input is a `FixInput`. */
  readonly fixer?: NoInfer<FixerOf<W>>
  /** How many workers may run at once; 4 without it. */
  readonly concurrency?: number
}

export interface RuntimeNode {
  readonly name: string
  readonly state: string
  run(context: AnyNodeContext): unknown
}

/** A definition that was checked. */
export interface Launch {
  readonly name: string
  readonly version: string
  readonly states: StateModel
  /** By state. */
  readonly nodes: ReadonlyMap<string, RuntimeNode>
  readonly workers: ReadonlyMap<string, WorkerDefinition<unknown, unknown>>
  readonly gates: ReadonlyMap<string, GateDefinition>
  readonly fixer: string | undefined
  readonly concurrency: number
}

/** Gives a worker its types, from its function. */
export function defineWorker<Input, Output>(
  definition: WorkerDefinition<Input, Output>,
): WorkerDefinition<Input, Output> {
  return definition
}

/** Gives a gate the error codes that its issues may have. */
export function defineGate<const Code extends string>(
  definition: GateDefinition<Code>,
): GateDefinition<Code> {
  return definition
}

const CONCURRENCY_DEFAULT = 4

/** Refuses, with `INVALID_ARGUMENT`, what could not work: a run must not be the first to find out. */
export function defineLaunch<
  const M extends StateModel = DocsStates,
  W extends Workers = Workers,
  G extends Gates = Gates,
>(definition: LaunchDefinition<M, W, G>): Launch {
  checkOptions('defineLaunch', definition, [
    ...['name', 'version', 'states', 'workers', 'gates', 'nodes', 'fixer', 'concurrency'],
  ])
  const { name, version, workers, nodes, fixer, concurrency = CONCURRENCY_DEFAULT } = definition
  const gates: Gates = definition.gates ?? {}
  checkName('a launch', name)
  checkName('a version', version)
  const states: StateModel = definition.states ?? DOCS_STATES
  checkStates(states)
  checkCount('concurrency', concurrency)
  for (const [worker, its] of Object.entries(workers)) checkWorker(worker, its)
  for (const [gate, its] of Object.entries(gates)) {
    checkName('a gate', gate)
    checkFunction(`run of gate ${gate}`, its.run)
    if (its.timeoutMs !== undefined) checkCount(`timeoutMs of gate ${gate}`, its.timeoutMs)
  }
  if (fixer !== undefined && !Object.hasOwn(workers, fixer)) {
    throw refusal('fixer', `is ${fixer}, which is none of the workers`)
  }
  return Object.freeze({
    name,
    version,
    states,
    nodes: nodesByState(states, nodes as readonly RuntimeNode[]),
    workers: new Map(Object.entries(workers)) as ReadonlyMap<string, WorkerDefinition<unknown, unknown>>,
    gates: new Map(Object.entries(gates)),
    fixer,
    concurrency,
  })
}

function nodesByState(states: StateModel, nodes: readonly RuntimeNode[]): ReadonlyMap<string, RuntimeNode> {
  const found = new Map<string, RuntimeNode>()
  const names = new Set<string>()
  for (const node of nodes) {
    const { name, state } = node
    checkName('a node', name)
    checkFunction(`run of node ${name}`, node.run)
    if (names.has(name)) throw refusal('nodes', `have ${name} twice`)
    names.add(name)
    if (ruleOf(states, state) === undefined)
      throw refusal('nodes', `have ${name} for ${state}, which is no state`)
    if (isTerminal(states, state))
      throw refusal('nodes', `have ${name} for ${state}, in which nothing is done`)
    const other = found.get(state)
    if (other !== undefined)
      throw refusal('nodes', `have two for the state ${state}: ${other.name} and ${name}`)
    found.set(state, node)
  }
  for (const state of Object.keys(states.states)) {
    if (!isTerminal(states, state) && !found.has(state))
      throw refusal('nodes', `have none for the state ${state}`)
  }
  return found
}

function checkWorker(name: string, worker: WorkerDefinition<never, unknown>): void {
  checkName('a worker', name)
  checkFunction(`run of worker ${name}`, worker.run)
  for (const option of ['attemptsMax', 'timeoutMs', 'concurrency', 'backoffMs'] as const) {
    if (worker[option] !== undefined) checkCount(`${option} of worker ${name}`, worker[option])
  }
}

const NAME = /^[A-Za-z0-9._-]{1,128}$/

/** Names are parts of ids, of paths and of the ledger's keys. */
function checkName(what: string, name: unknown): void {
  if (typeof name === 'string' && NAME.test(name)) return
  throw refusal(
    'name',
    `of ${what} must have 1 to 128 of the characters A-Z a-z 0-9 . _ -, not ${String(name)}`,
  )
}

function checkCount(name: string, value: unknown): void {
  if (Number.isSafeInteger(value) && (value as number) >= 1) return
  throw refusal(name, 'must be a whole number from 1')
}

function refusal(name: string, why: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, { name })
}
