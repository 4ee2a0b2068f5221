/** Programs are plain data, so they can be printed, and steps can be removed without changing the meaning of the others. */

export type Primitive = 'kv' | 'events' | 'cells' | 'machines' | 'traces'
export const TENANTS = ['default', 'acme'] as const
export type Tenant = (typeof TENANTS)[number]

/** One call of a primitive. Functions in `args` are given by name, see `cell-functions.ts`. */
export interface Call {
  readonly on: Primitive
  readonly name: string
  readonly args: readonly unknown[]
  /** The call is invalid in every state. */
  readonly bad?: boolean
  /** In a transaction: reads the receipt of the append at once, so that the commit must validate it. */
  readonly look?: boolean
  /** In a transaction: the scope of the call, if it is not the one that the transaction names. */
  readonly elsewhere?: string
}

export interface ScopedCall extends Call {
  readonly tenant: Tenant
  readonly scope: string
}

export interface RunsCall {
  readonly on: 'runs'
  readonly tenant: Tenant
  readonly name: string
  readonly args: readonly unknown[]
  readonly bad?: boolean
}

export type SingleCall = ScopedCall | RunsCall

export interface TransactionStep {
  readonly do: 'transaction'
  readonly tenant: Tenant
  readonly scope: string
  readonly calls: readonly Call[]
  readonly end: 'commit' | 'throw'
  readonly readOnly: boolean
  /** The object whose `transaction` method is called. That of `kv` offers only `kv`, and `tenant` is `db` without a scope. */
  readonly via: 'db' | 'run' | 'kv' | 'tenant'
  /** A call of another client during the first attempt. */
  readonly interference?: { readonly at: number; readonly call: SingleCall }
}

export type Step =
  | { readonly do: 'call'; readonly via: 'db' | 'run'; readonly call: SingleCall }
  | TransactionStep
  | {
      readonly do: 'begin'
      readonly slot: number
      readonly tenant: Tenant
      readonly scope: string
      readonly readOnly: boolean
    }
  | { readonly do: 'in'; readonly slot: number; readonly call: Call }
  | { readonly do: 'end'; readonly slot: number; readonly how: 'commit' | 'rollback' }
  | { readonly do: 'together'; readonly calls: readonly (SingleCall | TransactionStep)[] }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'look' }
  | { readonly do: 'checkpoint' }
  | { readonly do: 'reopen' }
  | {
      readonly do: 'crash'
      readonly kind: 'process' | 'power'
      /** The calls that are pending at the crash, and the turns of the microtask queue that they get before it. */
      readonly calls: readonly (SingleCall | TransactionStep)[]
      readonly turns: number
    }

export interface Program {
  readonly seed: number
  readonly store: 'memory' | 'disk'
  readonly durability: 'durable' | 'relaxed'
  readonly steps: readonly Step[]
}

export function isRunsCall(call: SingleCall): call is RunsCall {
  return call.on === 'runs'
}

export function showProgram({ seed, store, durability, steps }: Program): string {
  return [
    `program ${seed}, ${store}, ${durability}:`,
    ...steps.map((step, i) => `${i}. ${showStep(step)}`),
  ].join('\n  ')
}

function showStep(step: Step): string {
  switch (step.do) {
    case 'call':
      return `${step.via === 'run' ? 'run handle: ' : ''}${showSingle(step.call)}`
    case 'transaction':
      return showTransaction(step)
    case 'begin':
      return `tx${step.slot} = ${step.tenant}.begin(${step.scope}${step.readOnly ? ', read-only' : ''})`
    case 'in':
      return `tx${step.slot}.${showCall(step.call)}`
    case 'end':
      return `tx${step.slot}.${step.how}()`
    case 'together':
      return `at once: ${step.calls.map(showUnderWay).join(' | ')}`
    case 'wait':
      return step.ms < 0 ? `the clock is set back by ${-step.ms} ms` : `${step.ms} ms pass`
    case 'crash':
      return `${step.kind} crash ${step.turns} turns into: ${step.calls.map(showUnderWay).join(' | ')}`
    default:
      return step.do
  }
}

function showUnderWay(step: SingleCall | TransactionStep): string {
  return 'do' in step ? showTransaction(step) : showSingle(step)
}

function showTransaction({
  tenant,
  scope,
  calls,
  end,
  readOnly,
  via,
  interference,
}: TransactionStep): string {
  const lines = calls.map((call, i) => {
    const before = interference?.at === i ? `[meanwhile ${showSingle(interference.call)}] ` : ''
    return `${before}tx.${showCall(call)}`
  })
  return `${tenant}.${via === 'db' ? '' : `${via}.`}transaction(${scope}${readOnly ? ', read-only' : ''}) { ${lines.join('; ')}; ${end} }`
}

function showSingle(call: SingleCall): string {
  if (isRunsCall(call)) return `${call.tenant}.runs.${call.name}(${call.args.map(show).join(', ')})`
  const { tenant, scope, on, name, args } = call
  return `${tenant}.${on}.${name}(${[scope, ...args.map(show)].join(', ')})`
}

function showCall({ on, name, args, look, elsewhere }: Call): string {
  return `${elsewhere === undefined ? '' : `run(${elsewhere}).`}${on}.${name}(${args.map(show).join(', ')})${look === true ? ' and looks' : ''}`
}

/** Converts a value to text. The texts of two values are equal only if the values are, unlike JSON. */
export function show(value: unknown): string {
  if (value === null || typeof value === 'boolean') return String(value)
  if (typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'number') return Object.is(value, -0) ? '-0' : String(value)
  if (typeof value === 'bigint') return `${value}n`
  if (value instanceof Uint8Array) return `bytes(${[...value].join(' ')})`
  if (Array.isArray(value)) return `[${value.map(show).join(',')}]`
  if (typeof value === 'object') {
    const record = value as Record<string, unknown>
    const fields = Object.keys(record)
      .sort()
      .map(key => `${JSON.stringify(key)}:${show(record[key])}`)
    return `{${fields.join(',')}}`
  }
  return typeof value
}
