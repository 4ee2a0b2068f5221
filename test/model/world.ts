import { cellsModel } from './cells-model.ts'
import { eventsModel, isKnown, look } from './events-model.ts'
import { kvModel } from './kv-model.ts'
import { machinesModel } from './machines-model.ts'
import { runsModel, TenantState } from './runs-model.ts'
import { Refusal, ScopeState, Tracker, type View } from './scope-model.ts'
import { partsOf } from './scopes.ts'
import { type Call, isRunsCall, type SingleCall, show } from './steps.ts'
import { tracesModel } from './traces-model.ts'

/** The result of a call: its value, or the code of its error. */
export type Outcome = { readonly value: unknown } | { readonly error: string }

/** The result of an append in a transaction whose receipt was not read yet. */
export const UNSEEN = 'a receipt that nobody has looked at'

type Method = (view: unknown, ...args: unknown[]) => unknown
const MODELS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  kv: kvModel,
  events: eventsModel,
  cells: cellsModel,
  machines: machinesModel,
  traces: tracesModel,
  runs: runsModel,
}

/** `time` is the time of commits, which never goes back. `clock` may go back. Lifetimes are counted by it. */
export interface Now {
  readonly time: number
  readonly clock: number
}

/** What a transaction has read and written in one scope. */
interface ScopeInTransaction {
  readonly key: string
  /** The parts of the scope's name. */
  readonly parts: readonly string[]
  /** The scope's state when the transaction began. */
  readonly base: ScopeState
  /** The same state with the transaction's own writes. */
  readonly seen: ScopeState
  readonly tracker: Tracker
}

/** A transaction. It sees one moment and its own writes. Its calls are applied again when it commits. */
export class TransactionModel {
  readonly tenant: string
  /** The name of the scope of calls that name no other. */
  readonly scope: string
  /** The time at which it began. */
  readonly began: Now
  readonly readOnly: boolean
  /** All scopes when it began. */
  readonly bases: ReadonlyMap<string, ScopeState>
  /** The scopes that it has used, by key. */
  readonly scopes: Map<string, ScopeInTransaction>
  readonly calls: { readonly call: Call; readonly now: Now }[]
  ended = false

  constructor(
    of: Omit<TransactionModel, 'scopes' | 'calls' | 'ended' | 'at' | 'writes'>,
    from?: TransactionModel,
  ) {
    this.tenant = of.tenant
    this.scope = of.scope
    this.began = of.began
    this.readOnly = of.readOnly
    this.bases = of.bases
    this.scopes = new Map(
      [...(from?.scopes ?? [])].map(([key, one]) => [
        key,
        { ...one, seen: new ScopeState(one.seen), tracker: new Tracker(one.tracker) },
      ]),
    )
    this.calls = [...(from?.calls ?? [])]
    this.ended = from?.ended ?? false
  }

  get writes(): boolean {
    return [...this.scopes.values()].some(({ tracker }) => tracker.writes)
  }

  /** The scope of a call. */
  at({ elsewhere = this.scope }: Call): ScopeInTransaction {
    const key = keyOf(this.tenant, elsewhere)
    const known = this.scopes.get(key)
    if (known !== undefined) return known
    const base = this.bases.get(key) ?? new ScopeState()
    const parts = partsOf(this.tenant, elsewhere)
    const made = { key, parts, base, seen: new ScopeState(base), tracker: new Tracker() }
    this.scopes.set(key, made)
    return made
  }
}

/** One of the states that the database can be in, as far as the model knows. */
export class World {
  readonly scopes: Map<string, ScopeState>
  readonly tenants: Map<string, TenantState>
  readonly transactions: (TransactionModel | undefined)[]
  /** The version that the engine gave to each commit, as far as one was seen. */
  readonly versions: Map<number, number>
  #stamp: number

  constructor(from?: World) {
    this.scopes = new Map([...(from?.scopes ?? [])].map(([key, scope]) => [key, new ScopeState(scope)]))
    this.tenants = new Map([...(from?.tenants ?? [])].map(([key, tenant]) => [key, new TenantState(tenant)]))
    this.transactions = (from?.transactions ?? []).map(tx => tx && new TransactionModel(tx, tx))
    this.versions = new Map(from?.versions)
    this.#stamp = from === undefined ? 0 : from.#stamp
  }

  /** State that no call shows now, but that later results may depend on. */
  get hidden(): string {
    const later = [...this.scopes].map(([key, { kv, cells, machines, eventKeys }]) => [
      key,
      [...eventKeys],
      [...kv]
        .filter(([, { expiresAt }]) => expiresAt !== 0)
        .map(([name, { expiresAt }]) => [name, expiresAt]),
      [...cells].filter(([, { value }]) => value === undefined).map(([name, { version }]) => [name, version]),
      [...machines].map(([name, { definitions }]) => [name, definitions]),
    ])
    const seen = this.transactions.map(tx =>
      tx === undefined || tx.ended ? [] : [...tx.bases].map(([key, base]) => [key, contentOf(base)]),
    )
    // Worlds that differ only in the order of commits count as equal.
    return show([later, seen]).replaceAll(/"stamp":[0-9.]+/g, '')
  }

  scope(key: string): ScopeState {
    const known = this.scopes.get(key)
    if (known !== undefined) return known
    const made = new ScopeState()
    this.scopes.set(key, made)
    return made
  }

  /** Applies a call as its own transaction. */
  perform(call: SingleCall, now: Now, isTogether = false): Outcome {
    if (call.bad === true) return { error: 'INVALID_ARGUMENT' }
    const stamp = this.#nextStamp(isTogether)
    if (isRunsCall(call)) return this.#performOnRuns(call.tenant, call.name, call.args, now.time)
    const key = keyOf(call.tenant, call.scope)
    const parts = partsOf(call.tenant, call.scope)
    const { time, clock } = now
    return run(call, { scope: this.scope(key), parts, now: time, clock, moment: clock, stamp, time })
  }

  begin(tenant: string, scope: string, began: Now, readOnly: boolean): TransactionModel {
    const bases = new Map([...this.scopes].map(([key, state]) => [key, new ScopeState(state)]))
    return new TransactionModel({ tenant, scope, began, readOnly, bases })
  }

  performIn(tx: TransactionModel, call: Call, now: Now): Outcome {
    if (call.bad === true) return { error: 'INVALID_ARGUMENT' }
    const isEmptyBatch = call.name === 'appendBatch' && (call.args[0] as unknown[]).length === 0
    if (tx.ended) return { error: 'INVALID_OPERATION' }
    tx.calls.push({ call, now })
    const { began, readOnly } = tx
    const { seen, tracker, parts } = tx.at(call)
    const view: View = {
      scope: seen,
      parts,
      now: now.time,
      clock: now.clock,
      moment: began.clock,
      stamp: 0,
      time: began.time,
      tracker,
      readOnly,
    }
    const isReceipt = isKnown(view, call)
    const outcome = run(call, view)
    if (!isAppend(call) || 'error' in outcome || isEmptyBatch) return outcome
    if (call.look !== true) return { value: UNSEEN }
    if (!isReceipt) look(view)
    return outcome
  }

  /** Whether a commit now must fail, may fail, or can't fail. */
  conflict(tx: TransactionModel, { clock }: Now): 'must' | 'may' | 'no' {
    if (!tx.writes) return 'no'
    const isChanged = (which: 'must' | 'may'): boolean =>
      [...tx.scopes.values()].some(({ key, base, tracker }) => {
        const current = this.scope(key)
        return tracker[which].some(print => print(base, tx.began.clock) !== print(current, clock))
      })
    if (isChanged('must')) return 'must'
    return isChanged('may') ? 'may' : 'no'
  }

  /** Applies the calls again to the current state. Returns the results of the appends. */
  commit(tx: TransactionModel, now: Now, isTogether = false): Outcome[] {
    tx.ended = true
    // A transaction without writes took place when it began, so it has no place after later commits. Its appends are all
    // known by their keys.
    const { writes } = tx
    const stamp = writes ? this.#nextStamp(isTogether) : 0
    const appended: Outcome[] = []
    for (const { call, now: askedAt } of tx.calls) {
      const { key, parts, seen, tracker } = tx.at(call)
      const time = isAppend(call) && tracker.linked ? askedAt.time : now.time
      // The view keeps the moment of the transaction, so that entries it has seen do not expire while its calls are
      // applied again.
      const view = {
        scope: writes ? this.scope(key) : seen,
        parts,
        now: askedAt.time,
        clock: askedAt.clock,
        moment: tx.began.clock,
        stamp,
        time,
        readOnly: tx.readOnly,
      }
      const outcome = run(call, view)
      if (isAppend(call) && 'value' in outcome) appended.push(outcome)
    }
    return appended
  }

  /** Removes expired entries, so that they do not become visible again when the clock is set back. */
  forgetExpired(clock: number): void {
    for (const { kv } of this.scopes.values()) {
      for (const [key, { expiresAt }] of kv) if (expiresAt !== 0 && expiresAt <= clock) kv.delete(key)
    }
  }

  /** Concurrent calls form one group of stamps, because their order is unknown. */
  #nextStamp(isTogether: boolean): number {
    this.#stamp = isTogether ? this.#stamp + 0.1 : Math.floor(this.#stamp) + 1
    return this.#stamp
  }

  /** Begins a new group: later stamps come after all earlier ones. */
  startGroup(): void {
    this.#stamp = Math.floor(this.#stamp) + 1
  }

  #performOnRuns(tenant: string, name: string, args: readonly unknown[], now: number): Outcome {
    const state = this.tenants.get(tenant) ?? new TenantState()
    this.tenants.set(tenant, state)
    const view = {
      runs: state.runs,
      tombstones: state.tombstones,
      now,
      scopeOf: (scope: string) => this.scope(keyOf(tenant, scope)),
      drop: (scope: string) => this.scopes.set(keyOf(tenant, scope), new ScopeState()),
    }
    return attempt(() => (MODELS['runs'][name] as Method)(view, ...args))
  }
}

function contentOf({ kv, cells, machines, traces, events }: ScopeState): unknown[] {
  return [[...kv], [...cells], [...machines], [...traces], events]
}

export function isAppend({ name }: { readonly name: string }): boolean {
  return name === 'append' || name === 'appendBatch'
}

export function keyOf(tenant: string, scope: string): string {
  return `${tenant} ${scope}`
}

function run({ on, name, args }: Call, view: View): Outcome {
  return attempt(() => (MODELS[on][name] as Method)(view, ...args))
}

function attempt(work: () => unknown): Outcome {
  try {
    return { value: work() }
  } catch (error) {
    if (error instanceof Refusal) return { error: error.code }
    return { error: `thrown: ${(error as Error).message}` }
  }
}
