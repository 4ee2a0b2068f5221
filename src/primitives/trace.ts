import { AnnalsError } from '../core/errors.ts'
import type { Given } from '../core/storable.ts'
import type { Value } from '../core/value.ts'

/** One step of an agent's reasoning. */
export type Trace = ToolCall | Decision | Query | Thought | ErrorTrace | CustomTrace

/** The trace of one type; any trace if the type is not known when the program is compiled. */
export type TraceOf<K extends string> = K extends Trace['type'] ? Extract<Trace, { readonly type: K }> : Trace

/** A trace that `record` takes. `A`, `R` and `C` are the types of arguments, result and content, which must be storable. */
export type GivenTrace<A, R, C> =
  | ToolCall<Given<Value, A>, Given<Value, R>>
  | Decision
  | Query
  | Thought
  | ErrorTrace
  | CustomTrace<Given<Value, C>>

/** A call of a tool. */
export interface ToolCall<A = Value, R = Value> {
  /** Marks a tool call. */
  readonly type: 'ToolCall'
  /** The name of the tool that was called. */
  readonly toolName: string
  /** The arguments that the tool got. */
  readonly arguments: A
  /** The value that the tool returned; absent if none was recorded. */
  readonly result?: R | undefined
  /** How long the call took, in milliseconds: 0 or more. */
  readonly durationMs?: number | undefined
}

/** A choice among options. */
export interface Decision {
  /** Marks a decision. */
  readonly type: 'Decision'
  /** The question that the agent decided. */
  readonly question: string
  /** The options that the agent considered. */
  readonly options: readonly string[]
  /** The option that the agent chose. It is not checked against `options`. */
  readonly chosen: string
  /** Why the agent chose it, in free text. */
  readonly reasoning?: string | undefined
}

/** A query, for example of a database or a search engine. */
export interface Query {
  /** Marks a query. */
  readonly type: 'Query'
  /** The kind of query, such as `sql` or `web-search`; any text. */
  readonly queryType: string
  /** The query itself, as text. */
  readonly query: string
  /** How many results the query returned: a whole number, 0 or more. */
  readonly resultsCount: number
}

/** A thought in free text. */
export interface Thought {
  /** Marks a thought. */
  readonly type: 'Thought'
  /** The thought, in free text. */
  readonly content: string
  /** How sure the agent is. The scale is the caller's own; any number is allowed. */
  readonly confidence?: number | undefined
}

/** A failure. */
export interface ErrorTrace {
  /** Marks a failure. */
  readonly type: 'Error'
  /** The kind of failure, such as `TimeoutError`; any text. */
  readonly errorType: string
  /** The error message. */
  readonly message: string
  /** Whether the agent could go on after the failure. */
  readonly recoverable: boolean
}

/** A trace of the caller's own kind. Queries find it by the type `Custom`. */
export interface CustomTrace<C = Value> {
  /** Marks a trace of the caller's own kind. */
  readonly type: 'Custom'
  /** The caller's own name for this kind of trace. It is not indexed. */
  readonly traceType: string
  /** The content of the trace. */
  readonly data: C
}

interface Kind {
  readonly says: string
  readonly test: (value: unknown) => boolean
}

const TEXT: Kind = { says: 'a string', test: value => typeof value === 'string' }
const TEXTS: Kind = {
  says: 'an array of strings',
  test: value => Array.isArray(value) && value.every(item => typeof item === 'string'),
}
const BOOLEAN: Kind = { says: 'true or false', test: value => typeof value === 'boolean' }
const NUMBER: Kind = { says: 'a number', test: value => typeof value === 'number' && !Number.isNaN(value) }
const DURATION: Kind = {
  says: 'a number of milliseconds, 0 or more',
  test: value => Number.isFinite(value) && (value as number) >= 0,
}
const COUNT: Kind = {
  says: 'a whole number, 0 or more',
  test: value => Number.isSafeInteger(value) && (value as number) >= 0,
}
/** Any value. The encoder checks it. */
const VALUE: Kind = { says: 'a value', test: value => value !== undefined }

interface Shape {
  readonly required: Readonly<Record<string, Kind>>
  readonly optional: Readonly<Record<string, Kind>>
}

const SHAPES: Readonly<Record<Trace['type'], Shape>> = {
  ToolCall: {
    required: { toolName: TEXT, arguments: VALUE },
    optional: { result: VALUE, durationMs: DURATION },
  },
  Decision: { required: { question: TEXT, options: TEXTS, chosen: TEXT }, optional: { reasoning: TEXT } },
  Query: { required: { queryType: TEXT, query: TEXT, resultsCount: COUNT }, optional: {} },
  Thought: { required: { content: TEXT }, optional: { confidence: NUMBER } },
  Error: { required: { errorType: TEXT, message: TEXT, recoverable: BOOLEAN }, optional: {} },
  Custom: { required: { traceType: TEXT, data: VALUE }, optional: {} },
}

/** Checks a trace, and returns it without undefined fields. Refuses unknown types and fields. */
export function checkTrace(trace: GivenTrace<unknown, unknown, unknown>): Readonly<Record<string, Value>> {
  if (typeof trace !== 'object' || trace === null) return refuse('it is not an object', {})
  const { type } = trace
  if (!Object.hasOwn(SHAPES, type)) {
    return refuse(`type must be one of ${Object.keys(SHAPES).join(', ')}`, { type })
  }
  const { required, optional } = SHAPES[type]
  const stored: Record<string, Value> = {}
  for (const [field, value] of Object.entries({ ...trace, type }) as [string, Value | undefined][]) {
    if (value === undefined && !Object.hasOwn(required, field)) continue
    const kind = field === 'type' ? TEXT : (kindOf(required, field) ?? kindOf(optional, field))
    if (kind === undefined) return refuse(`${field} is not a field of a ${type}`, { type, field })
    if (!kind.test(value)) return refuse(`${field} must be ${kind.says}`, { type, field })
    stored[field] = value as Value
  }
  for (const field of Object.keys(required)) {
    if (!Object.hasOwn(stored, field)) return refuse(`${field} is missing`, { type, field })
  }
  return stored
}

function kindOf(fields: Readonly<Record<string, Kind>>, field: string): Kind | undefined {
  return Object.hasOwn(fields, field) ? fields[field] : undefined
}

function refuse(why: string, details: Readonly<Record<string, unknown>>): never {
  throw new AnnalsError('INVALID_ARGUMENT', `not a trace: ${why}`, { name: 'trace', ...details })
}
