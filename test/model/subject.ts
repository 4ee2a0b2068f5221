import { Annals } from '../../src/annals.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { type EmbeddedOptions, openEmbedded } from '../../src/embedded/open.ts'
import { Database, type Timing } from '../../src/engine/database.ts'
import {
  AnnalsError,
  type EventReceipt,
  type OpenTransaction,
  type ScopedTransaction,
  type UpdateReads,
} from '../../src/index.ts'
import type { Random } from '../../src/testing/random.ts'
import type { SimulatedClock } from '../../src/testing/simulated-clock.ts'
import { SMALL, tinyOptions, unevenly } from '../campaigns/crash-shapes.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { BAD_CELL_FUNCTIONS, CELL_FUNCTIONS } from './cell-functions.ts'
import { GUARDS } from './machines-model.ts'
import { RUN_NAMES, SCOPE_NAMES, scopeOf } from './scopes.ts'
import { type Call, isRunsCall, type SingleCall, TENANTS, type TransactionStep } from './steps.ts'
import { UPDATE_FUNCTIONS } from './update-functions.ts'
import { isAppend, type Outcome, UNSEEN } from './world.ts'

/** The database under test, with the calls and crashes that it is subjected to. */

/** Timers never fire, so time passes only on the simulated clock. */
const TIMING: Timing = {
  random: () => 0.5,
  sleep: () => Promise.resolve(),
  timer: () => () => undefined,
  now: () => 0,
}

/** The results of one attempt of a transaction. */
interface Attempt {
  readonly outcomes: Outcome[]
  readonly receipts: Receipts
  /** The content of the receipts after the transaction. */
  appended: readonly Outcome[]
}

export interface TransactionOutcome {
  readonly attempts: readonly Attempt[]
  readonly interference: Outcome | undefined
  readonly end: Outcome
}

export interface OpenSlot {
  readonly tenant: string
  readonly tx: OpenTransaction
  readonly receipts: Receipts
}

/** The receipts of the appends in a transaction, by call. */
type Receipts = (EventReceipt | readonly EventReceipt[])[]

export class Subject {
  readonly storage: EmbeddedStore
  readonly #handles: Readonly<Record<string, Annals>>
  readonly #disk: SimulatedDisk | undefined
  readonly #options: SubjectOptions

  private constructor(storage: EmbeddedStore, options: SubjectOptions, disk: SimulatedDisk | undefined) {
    this.storage = storage
    this.#options = options
    this.#disk = disk
    const first = new Annals({ storage, database: new Database(storage, TIMING), guards: GUARDS }, TENANTS[0])
    this.#handles = { [TENANTS[0]]: first, [TENANTS[1]]: first.forTenant(TENANTS[1]) }
  }

  static async open(options: SubjectOptions, disk?: SimulatedDisk): Promise<Subject> {
    const { clock, random, store, durability } = options
    const on = store === 'disk' ? (disk ?? new SimulatedDisk({ later: unevenly(random.fork()) })) : undefined
    const embedded: EmbeddedOptions =
      on === undefined
        ? { clock: clock.now, scheduler: { soon: queueMicrotask, later: queueMicrotask, now: () => 0 } }
        : tinyOptions(on, SMALL, durability, clock.now)
    return new Subject(await openEmbedded(embedded), options, on)
  }

  async reopen(): Promise<Subject> {
    await this.storage.close()
    return Subject.open(this.#options, this.#disk)
  }

  /** Opens the store as the next process finds it. The crashed process may continue on its own disk without effect. */
  crash(kind: 'process' | 'power'): Promise<Subject> {
    const { random } = this.#options
    const disk = this.#disk as SimulatedDisk
    const image =
      kind === 'process' ? disk.afterProcessCrash(random.fork()) : disk.afterPowerCut(random.fork())
    return Subject.open(this.#options, image)
  }

  handle(tenant: string): Annals {
    return this.#handles[tenant]
  }

  async perform(call: SingleCall, via: 'db' | 'run' = 'db'): Promise<Outcome> {
    const db = this.handle(call.tenant)
    if (isRunsCall(call)) {
      const args = call.bad === true ? call.args : call.args.map(arg => withScopes(call.tenant, arg))
      return outcomeOf(() => invoke(call.name === 'drop' ? db : db.runs, call.name, args))
    }
    return outcomeOf(() => {
      const scope = scopeOf(call.tenant, call.scope)
      const args = argumentsOf(call)
      if (via === 'run') return invoke(db.run(scope)[call.on], call.name, args)
      return invoke(db[call.on], call.name, [scope, ...args])
    })
  }

  async begin(tenant: string, scope: string, readOnly: boolean): Promise<OpenSlot> {
    const tx = await this.handle(tenant).begin(scopeOf(tenant, scope), { readOnly })
    return { tenant, tx, receipts: [] }
  }

  async transaction(step: TransactionStep): Promise<TransactionOutcome> {
    const { tenant, scope: name, calls, end, readOnly, via, interference } = step
    const attempts: Attempt[] = []
    let interfered: Outcome | undefined
    const work = async (tx: ScopedTransaction): Promise<void> => {
      const attempt: Attempt = { outcomes: [], receipts: [], appended: [] }
      const isFirst = attempts.push(attempt) === 1
      for (const [i, call] of calls.entries()) {
        if (isFirst && interference?.at === i) interfered = await this.perform(interference.call)
        attempt.outcomes.push(await performIn({ tenant, tx, receipts: attempt.receipts }, call))
      }
      if (end === 'throw') throw new Error('called off')
    }
    const db = this.handle(tenant)
    const scope = scopeOf(tenant, name)
    const ended = await outcomeOf(() => {
      if (via === 'kv') return db.kv.transaction(scope, kv => work({ kv } as ScopedTransaction))
      const options = readOnly ? { readOnly } : {}
      if (via === 'tenant') return db.transaction(tx => work({ ...tx, ...tx.run(scope) }), options)
      return via === 'run' ? db.run(scope).transaction(work, options) : db.transaction(scope, work, options)
    })
    for (const attempt of attempts) attempt.appended = await receiptsOf(attempt.receipts)
    return { attempts, interference: interfered, end: ended }
  }
}

interface SubjectOptions {
  readonly store: 'memory' | 'disk'
  readonly durability: 'durable' | 'relaxed'
  readonly clock: SimulatedClock
  readonly random: Random
}

export async function performIn(
  {
    tenant,
    tx,
    receipts,
  }: { readonly tenant: string; readonly tx: ScopedTransaction; readonly receipts: Receipts },
  call: Call,
): Promise<Outcome> {
  const { on, name, look, elsewhere } = call
  const target = (elsewhere === undefined ? tx : tx.run(scopeOf(tenant, elsewhere)))[on]
  if (!isAppend(call)) return outcomeOf(() => invoke(target, name, argumentsOf(call)))
  let receipt: EventReceipt | readonly EventReceipt[] = []
  const outcome = await outcomeOf(async () => {
    receipt = (await invoke(target, name, argumentsOf(call))) as typeof receipt
    return look === true ? asSeen(receipt) : UNSEEN
  })
  if (Array.isArray(receipt) && receipt.length === 0) return 'error' in outcome ? outcome : { value: [] }
  receipts.push(receipt)
  return outcome
}

/** The content of the receipts now. The receipts of a failed transaction throw. */
export function receiptsOf(receipts: Receipts): Promise<Outcome[]> {
  return Promise.all(receipts.map(receipt => outcomeOf(() => asSeen(receipt))))
}

/** Copies a receipt, because its content may change or become unavailable. */
function asSeen(receipt: EventReceipt | readonly EventReceipt[]): unknown {
  if (Array.isArray(receipt)) return Object.freeze(receipt.map(asSeen))
  const { sequence, hash } = receipt as EventReceipt
  return Object.freeze({ sequence, hash })
}

/** Replaces the names of runs in an argument with their scopes. */
function withScopes(tenant: string, arg: unknown): unknown {
  if (typeof arg === 'string') return isName(arg) ? scopeOf(tenant, arg) : arg
  if (typeof arg !== 'object' || arg === null) return arg
  const options = arg as Record<string, unknown>
  const named = ['runId', 'parentRun', 'after'].filter(name => typeof options[name] === 'string')
  if (named.length === 0) return arg
  return {
    ...options,
    ...Object.fromEntries(named.map(name => [name, scopeOf(tenant, options[name] as string)])),
  }
}

/** Whether a string argument is the name of a run or scope, and not a value, status or message. */
function isName(text: string): boolean {
  return RUN_NAMES.includes(text) || SCOPE_NAMES.includes(text)
}

async function invoke(target: object, name: string, args: readonly unknown[]): Promise<unknown> {
  const method = (target as Record<string, (...args: readonly unknown[]) => unknown>)[name]
  if (name === 'tail') return takeTail(target, method, args)
  const result = method.apply(target, [...args])
  return name === 'iterate' ? collect(result as AsyncIterable<unknown>) : result
}

async function collect(items: AsyncIterable<unknown>): Promise<readonly unknown[]> {
  const all: unknown[] = []
  for await (const item of items) all.push(item)
  return Object.freeze(all)
}

/** Reads all events from a tail and stops it then, because no more events would come. */
async function takeTail(
  target: object,
  tail: (...args: readonly unknown[]) => unknown,
  args: readonly unknown[],
): Promise<readonly unknown[]> {
  const stop = new AbortController()
  const { from = 0 } = args.at(-1) as { from?: number }
  const length = (await invoke(target, 'length', args.slice(0, -1))) as number
  if (length <= from) stop.abort()
  const all: unknown[] = []
  const events = tail.apply(target, [...args.slice(0, -1), { from, signal: stop.signal }])
  for await (const event of events as AsyncIterable<unknown>) {
    if (all.push(event) === length - from) stop.abort()
  }
  return Object.freeze(all)
}

function argumentsOf({ on, name, args, bad }: Call): readonly unknown[] {
  if (name === 'update' && bad !== true) {
    const [reads, change] = args as [UpdateReads, string]
    return [reads, UPDATE_FUNCTIONS[change](reads)]
  }
  if (on !== 'cells' || !name.startsWith('transition')) return args
  const last = args.at(-1) as string
  const step = CELL_FUNCTIONS[last] ?? BAD_CELL_FUNCTIONS[last]
  return step === undefined && bad === true ? args : [...args.slice(0, -1), step]
}

export async function outcomeOf(work: () => unknown): Promise<Outcome> {
  try {
    const value = await work()
    return isFrozen(value) ? { value } : { error: `not frozen: ${JSON.stringify(value)}` }
  } catch (error) {
    return { error: error instanceof AnnalsError ? error.code : `thrown: ${(error as Error).message}` }
  }
}

function isFrozen(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return true
  return Object.isFrozen(value) && Object.values(value).every(isFrozen)
}
