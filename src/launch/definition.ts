import { invalidArgument } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import type { AnyNodeContext, FixInput, GateContext, WorkerContext } from './context.ts'
import { DOCS_STATES, type DocsStates } from './docs/pipeline.ts'
import type { Issue } from './events.ts'
import {
  type ActiveStateOf,
  checkStates,
  isTerminal,
  type NextStateOf,
  ruleOf,
  type StateModel,
} from './states.ts'

/** The definition of a launch, with types inferred from its workers, gates and states. */

/** A worker: a function, and how often and how long it may run. */
export interface WorkerDefinition<Input, Output> {
  /** Does the work. The result is recorded, and returned again when a node asks for the same work. */
  run(input: Input, context: WorkerContext): Output | Promise<Output>
  /** The most attempts; 3 by default. An error with `retryable: false` ends them early. */
  readonly attemptsMax?: number
  /** The wait before the second attempt; 100 by default. It doubles with each further attempt. */
  readonly backoffMs?: number
  /** How long an attempt may take; unlimited by default. */
  readonly timeoutMs?: number
  /** How many attempts may run at once; by default limited by the launch alone. */
  readonly concurrency?: number
}

/** An issue as a gate returns it. The launch adds the gate's name and an id. */
export interface FoundIssue<Code extends string = string>
  extends Omit<Issue, 'issue_id' | 'gate' | 'error_code'> {
  /** A code that programs can react to. */
  readonly error_code?: Code
}

/** A gate: a function that finds issues. */
export interface GateDefinition<Code extends string = string> {
  /** Returns all issues that it finds. An empty list passes the gate. */
  run(context: GateContext): readonly FoundIssue<Code>[] | Promise<readonly FoundIssue<Code>[]>
  /** How long a run of the gate may take; unlimited by default. */
  readonly timeoutMs?: number
}

/** The workers of a launch by name. */
export type Workers = Readonly<Record<string, WorkerDefinition<never, unknown>>>
/** The gates of a launch by name. */
export type Gates = Readonly<Record<string, GateDefinition<string>>>

/** The input of a worker. */
export type InputOf<W> = W extends WorkerDefinition<infer Input, infer _> ? Input : never
/** The result of a worker. */
export type OutputOf<W> = W extends WorkerDefinition<infer _, infer Output> ? Awaited<Output> : never
/** The error codes of gates. */
export type CodeOf<G extends Gates> = G[keyof G] extends GateDefinition<infer Code> ? Code : never
/** The workers whose input can be a `FixInput`. */
export type FixerOf<W extends Workers> = {
  [K in keyof W & string]: FixInput extends InputOf<W[K]> ? K : never
}[keyof W & string]

/** What work is about, and which artifacts it reads. */
export interface WorkScope {
  /** What the work is about. The same worker can do the same work for many scopes. */
  readonly scope?: string
  /** The artifacts that the worker reads. If one of them changes, finished work is done again. */
  readonly inputs?: readonly string[]
}
/** The options of `work`. They are optional for a worker without an input. */
export type WorkArguments<Input> = [undefined] extends [Input]
  ? [options?: WorkScope & { readonly input?: Input }]
  : [options: WorkScope & { readonly input: Input }]

/** The result of running all gates. */
export interface Validation<G extends Gates> {
  /** Whether no open issue is an error or a blocker. */
  readonly ok: boolean
  /** The open issues, the worst first. */
  readonly issues: readonly (Issue & { readonly gate: keyof G & string; readonly error_code?: CodeOf<G> })[]
}

/** What a node gets to work with. */
export interface NodeContext<W extends Workers, G extends Gates>
  extends Omit<AnyNodeContext, 'work' | 'validate'> {
  /**
   * Runs a worker. Finished work with the same scope, input and artifacts is not executed again: its recorded result is
   * returned. Failed attempts are retried; the promise rejects with the error of the last one.
   */
  work<K extends keyof W & string>(
    worker: K,
    ...options: WorkArguments<InputOf<W[K]>>
  ): Promise<OutputOf<W[K]>>
  /** Runs all gates, opens and resolves issues, and writes the artifact `validation_report.json`. */
  validate(): Promise<Validation<G>>
}

/** The code that runs in a state. It returns the next state. */
export type NodeDefinition<M extends StateModel, W extends Workers, G extends Gates> = {
  [S in ActiveStateOf<M>]: {
    readonly name: string
    readonly state: S
    // Only a promise: for `X | Promise<X>` the compiler infers `string` from an async function.
    run(context: NodeContext<W, G>): Promise<NextStateOf<M, S>>
  }
}[ActiveStateOf<M>]

/** The argument of `defineLaunch`. */
export interface LaunchDefinition<M extends StateModel, W extends Workers, G extends Gates> {
  /** The name of the launch. A run can only be resumed by the launch of the same name. */
  readonly name: string
  /** The version of the launch. It is recorded with each run. */
  readonly version: string
  /** The state model; `RUN_STATES` by default. */
  readonly states?: M
  /** The workers by name. */
  readonly workers: W
  /** The gates by name. They run in this order. */
  readonly gates?: G
  /** A node for each state that is not terminal. */
  readonly nodes: readonly NodeDefinition<M, W, G>[]
  /** The worker that `fix` runs. Its input is a `FixInput`. */
  readonly fixer?: NoInfer<FixerOf<W>>
  /** How many workers may run at once; 4 by default. */
  readonly concurrency?: number
}

/** A node without the types of its launch. */
export interface RuntimeNode {
  /** The name of the node. */
  readonly name: string
  /** The state in which it runs. */
  readonly state: string
  /** Returns the next state. */
  run(context: AnyNodeContext): unknown
}

/** A valid definition of a launch. */
export interface Launch {
  /** The name of the launch. */
  readonly name: string
  /** The version of the launch. */
  readonly version: string
  /** The state model of its runs. */
  readonly states: StateModel
  /** The node of each state. */
  readonly nodes: ReadonlyMap<string, RuntimeNode>
  /** The workers by name. */
  readonly workers: ReadonlyMap<string, WorkerDefinition<unknown, unknown>>
  /** The gates by name, in the order in which they run. */
  readonly gates: ReadonlyMap<string, GateDefinition>
  /** The name of the worker that fixes issues. */
  readonly fixer: string | undefined
  /** How many workers may run at once. */
  readonly concurrency: number
}

/** Defines a worker. Its input and its result are typed from its function. */
export function defineWorker<Input, Output>(
  definition: WorkerDefinition<Input, Output>,
): WorkerDefinition<Input, Output> {
  return definition
}

/** Defines a gate. The error codes of its issues are typed. */
export function defineGate<const Code extends string>(
  definition: GateDefinition<Code>,
): GateDefinition<Code> {
  return definition
}

const OPTIONS = ['name', 'version', 'states', 'workers', 'gates', 'nodes', 'fixer', 'concurrency']
const CONCURRENCY_DEFAULT = 4

/** Checks a definition. Throws `INVALID_ARGUMENT` for one that a run could not be executed with. */
export function defineLaunch<
  const M extends StateModel = DocsStates,
  W extends Workers = Workers,
  G extends Gates = Gates,
>(definition: LaunchDefinition<M, W, G>): Launch {
  checkOptions('defineLaunch', definition, OPTIONS)
  const { name, version, workers, nodes, fixer, concurrency = CONCURRENCY_DEFAULT } = definition
  const gates: Gates = definition.gates ?? {}
  checkName('a launch', name)
  checkName('a launch', version, 'version')
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
    throw invalidArgument('fixer', `is ${fixer}, which is not one of the workers`)
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
    if (names.has(name)) throw invalidArgument('nodes', `must have different names: ${name} is there twice`)
    names.add(name)
    if (ruleOf(states, state) === undefined)
      throw invalidArgument(
        'nodes',
        `must belong to states: ${name} belongs to ${state}, which is not a state`,
      )
    if (isTerminal(states, state))
      throw invalidArgument('nodes', `must not belong to terminal states: ${name} belongs to ${state}`)
    const other = found.get(state)
    if (other !== undefined)
      throw invalidArgument('nodes', `must be one a state: ${state} has ${other.name} and ${name}`)
    found.set(state, node)
  }
  for (const state of Object.keys(states.states)) {
    if (!isTerminal(states, state) && !found.has(state))
      throw invalidArgument('nodes', `must include one for the state ${state}`)
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

/** Names become parts of ids, of paths and of the ledger's keys. */
function checkName(what: string, value: unknown, field = 'name'): void {
  if (typeof value === 'string' && NAME.test(value)) return
  throw invalidArgument(
    field,
    `of ${what} must have 1 to 128 of the characters A-Z a-z 0-9 . _ -, not ${String(value)}`,
  )
}

function checkCount(name: string, value: unknown): void {
  if (Number.isSafeInteger(value) && (value as number) >= 1) return
  throw invalidArgument(name, 'must be a positive integer')
}
