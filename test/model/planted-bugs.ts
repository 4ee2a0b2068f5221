import { Annals } from '../../src/annals.ts'
import { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { Database } from '../../src/engine/database.ts'
import { parseScope, TAGS } from '../../src/engine/keys.ts'
import type { Commit, Operation, Step, UpdateOptions } from '../../src/engine/storage.ts'
import { OptimisticTransaction } from '../../src/engine/transaction.ts'
import type {
  AppendEventOptions,
  CreateRunOptions,
  PutOptions,
  Scope,
  Transition,
  Value,
} from '../../src/index.ts'
import { EventLog } from '../../src/primitives/event-log.ts'
import { KvStore } from '../../src/primitives/kv-store.ts'
import { Runs } from '../../src/primitives/run-index.ts'
import { RunScopes } from '../../src/primitives/run-scopes.ts'
import { CellStore } from '../../src/primitives/state-cell.ts'
import { MachineStore } from '../../src/primitives/state-machine.ts'
import { TraceStore } from '../../src/primitives/trace-store.ts'

/** A bug that replaces a correct method. The model must find it, because a bug that it can't find is in an untested part. */
export interface PlantedBug {
  readonly name: string
  /** Plants the bug. Returns a function that removes it. */
  plant(): () => void
}

/** Replaces a method of a class with the one that `make` returns. */
function bug<C extends object, N extends keyof C>(
  name: string,
  type: { readonly prototype: C },
  method: N,
  make: (sound: C[N]) => C[N],
): PlantedBug {
  return {
    name,
    plant() {
      const { prototype } = type
      const sound = prototype[method]
      prototype[method] = make(sound)
      return () => {
        prototype[method] = sound
      }
    },
  }
}

/**
 * Changes the operations of every step of the primitives, alone or in a transaction. `change` returns the operation to
 * write instead.
 */
function inSteps(name: string, change: (operation: Operation) => Operation | undefined): PlantedBug {
  const changed = <T>(step: Step<T>): Step<T> => {
    return (found, ranges) => {
      const outcome = step(found, ranges)
      return { ...outcome, operations: outcome.operations.map(change).filter(each => each !== undefined) }
    }
  }
  return bug(name, Database, 'update', sound => {
    return function <T>(
      this: Database,
      reads: Parameters<typeof sound>[0],
      step: Step<T>,
      options?: UpdateOptions,
    ) {
      return sound.call(this, reads, changed(step), options) as ReturnType<typeof sound<T>>
    } as typeof sound
  })
}

/** Whether the scope is in another app or agent than `default`. */
function isPlaced(scope: string): boolean {
  const { app, agent } = parseScope(scope)
  return app !== 'default' || agent !== 'default'
}

const isRunIndex = (operation: Operation, kind: string): boolean =>
  operation.op !== 'drop' &&
  operation.op !== 'append' &&
  operation.tag === TAGS.run &&
  operation.key[0] === kind

/** A plain object with its members sorted by name. */
function sorted(value: unknown): unknown {
  const isPlain =
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  return isPlain ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value
}

export const PLANTED_BUGS: readonly PlantedBug[] = [
  bug('a cas ignores the version', CellStore, 'cas', () => {
    return async function (this: CellStore<unknown>, scope, name: string, _: number, value: unknown) {
      if (await this.exists(scope, name)) return this.set(scope, name, value)
      return this.transition(scope, name, () => ({ value, result: 0 })).then(({ version }) => version)
    }
  }),
  bug('a transition loses an update', CellStore, 'transition', sound => {
    return async function <T>(this: CellStore<unknown>, scope: unknown, name: string, step: Transition<T>) {
      const state = await this.read(scope, name).catch(() => undefined)
      if (state === undefined || typeof step !== 'function') return sound.call(this, scope, name, step)
      const { value, result } = step(state)
      const version = await this.set(scope, name, value)
      const isBytes = value instanceof Uint8Array
      return Object.freeze({ result, value: isBytes ? value : Object.freeze(value), version })
    } as CellStore<unknown>['transition']
  }),
  inSteps('a deleted cell forgets its version', operation =>
    operation.op === 'put' && operation.tag === TAGS.state && operation.value.length === 8
      ? { op: 'delete', scope: operation.scope, tag: operation.tag, key: operation.key }
      : operation,
  ),
  bug('a list forgets where to begin', KvStore, 'list', sound => {
    return function (this: KvStore<unknown>, scope, { after: _, ...options } = {}) {
      return sound.call(this, scope, options)
    }
  }),
  bug('a list sorts by UTF-16', KvStore, 'list', sound => {
    return async function (this: KvStore<unknown>, scope, options) {
      return Object.freeze([...(await sound.call(this, scope, options))].sort())
    }
  }),
  bug('a put keeps the time to live of the one before', KvStore, 'put', sound => {
    const lives = new Map<string, PutOptions>()
    return function (
      this: KvStore<unknown>,
      scope: unknown,
      key: string,
      value: unknown,
      options: PutOptions = {},
    ) {
      if (Number.isSafeInteger(options.ttlMs) && Number(options.ttlMs) > 0) lives.set(key, options)
      return sound.call(
        this,
        scope,
        key,
        value,
        Object.keys(options).length === 0 ? (lives.get(key) ?? {}) : options,
      )
    }
  }),
  bug('a put sorts members by name', KvStore, 'put', sound => {
    return function (this: KvStore<unknown>, scope: unknown, key: string, value: unknown, options) {
      return sound.call(this, scope, key, sorted(value), options)
    }
  }),
  bug('a cell sorts members by name', CellStore, 'set', sound => {
    return function (this: CellStore<unknown>, scope: unknown, name: string, value: unknown) {
      return sound.call(this, scope, name, sorted(value))
    }
  }),
  bug('metadata lose a byte', Runs, 'updateMetadata', sound => {
    return function (this: Runs, runId: Scope, metadata: Value) {
      return sound.call(this, runId, metadata instanceof Uint8Array ? metadata.subarray(1) : metadata)
    } as Runs['updateMetadata']
  }),
  bug('a key lives a millisecond longer', KvStore, 'put', sound => {
    return function (
      this: KvStore<unknown>,
      scope: unknown,
      key: string,
      value: unknown,
      { ttlMs, ...more }: PutOptions = {},
    ) {
      const isRight = Number.isSafeInteger(ttlMs) && (ttlMs as number) > 0
      const longer = ttlMs === undefined ? {} : { ttlMs: isRight ? ttlMs + 1 : ttlMs }
      return sound.call(this, scope, key, value, { ...more, ...longer })
    }
  }),
  bug('a batch of events is not one step', EventLog, 'appendBatch', () => {
    return async function (this: EventLog<unknown>, scope, events) {
      const receipts = []
      for (const { type, payload } of events) receipts.push(await this.append(scope, type, payload))
      return Object.freeze(receipts)
    }
  }),
  bug('a range of events takes in its end', EventLog, 'readRange', sound => {
    return function (this: EventLog<unknown>, scope, start: number, end: number) {
      return sound.call(this, scope, start, end > start ? end + 1 : end)
    }
  }),
  bug('an append ignores the expected length', EventLog, 'append', sound => {
    return function (this: EventLog<unknown>, scope, type, payload, options = {}) {
      const { expectedLength, ...rest } = options
      const isValid = Number.isSafeInteger(expectedLength) && (expectedLength as number) >= 0
      return sound.call(this, scope, type, payload, isValid ? rest : options)
    }
  }),
  inSteps('an idempotency key is forgotten', operation => {
    if (operation.op !== 'append' || operation.tag !== TAGS.event) return operation
    const { dedupe: _, ...append } = operation
    return append
  }),
  bug('an expected length counts before a known key', EventLog, 'append', sound => {
    return async function (this: EventLog<unknown>, scope, type, payload, options = {}) {
      const { expectedLength, idempotencyKey } = options
      const isBoth = idempotencyKey !== undefined && idempotencyKey !== '' && Number(expectedLength) >= 0
      if (!isBoth) return sound.call(this, scope, type, payload, options)
      await sound.call(this, scope, type, payload, { expectedLength } as AppendEventOptions)
      return sound.call(this, scope, type, payload, { idempotencyKey })
    }
  }),
  bug('an iteration backwards begins before its end', EventLog, 'iterate', sound => {
    return function (this: EventLog<unknown>, scope, options = {}) {
      const { to, reverse } = options
      const isShort = reverse === true && Number.isSafeInteger(to) && (to as number) > 0
      return sound.call(this, scope, isShort ? { ...options, to: (to as number) - 1 } : options)
    } as EventLog<unknown>['iterate']
  }),
  bug('an iteration ignores the types', EventLog, 'iterate', sound => {
    return function (this: EventLog<unknown>, scope, options = {}) {
      const { types, ...rest } = options
      return sound.call(this, scope, Array.isArray(types) ? rest : options)
    } as EventLog<unknown>['iterate']
  }),
  bug('a page of one type begins with its cursor', EventLog, 'readByType', sound => {
    return function (this: EventLog<unknown>, scope, type, options = {}) {
      const { after, ...rest } = options
      const isLate = Number.isSafeInteger(after) && (after as number) > 0
      return sound.call(this, scope, type, isLate ? { ...rest, after: (after as number) - 1 } : options)
    } as EventLog<unknown>['readByType']
  }),
  inSteps('a trace is not found by its parent', operation =>
    operation.op === 'put' && operation.tag === TAGS.trace && operation.key[0] === 'p'
      ? undefined
      : operation,
  ),
  bug('children of a trace come by id', TraceStore, 'children', sound => {
    return async function (this: TraceStore<unknown>, scope, id: string) {
      return Object.freeze([...(await sound.call(this, scope, id))].sort((a, b) => (a.id < b.id ? -1 : 1)))
    }
  }),
  inSteps('a deleted run leaves its tags in the index', operation =>
    operation.op === 'delete' && isRunIndex(operation, 'g') ? undefined : operation,
  ),
  inSteps('a run that changes its status stays under the old one', operation =>
    operation.op === 'delete' && isRunIndex(operation, 's') ? undefined : operation,
  ),
  inSteps('a deleted run keeps its data', operation => (operation.op === 'drop' ? undefined : operation)),
  inSteps('a run that is deleted leaves what is in its namespace', operation =>
    operation.op === 'drop' && isPlaced(operation.scope) ? undefined : operation,
  ),
  bug('a query forgets runs in namespaces', Runs, 'query', sound => {
    return async function (this: Runs, query) {
      const found = await sound.call(this, query)
      return Object.freeze(found.filter(({ app, agent }) => app === undefined && agent === undefined))
    }
  }),
  bug('an id may be used once in each namespace', Runs, 'create', sound => {
    return async function (this: Runs, options: CreateRunOptions = {}) {
      const { runId } = options
      const known = typeof runId === 'object' ? await this.get(runId.run) : undefined
      const isElsewhere = known !== undefined && (await this.get(runId as Scope)) === undefined
      return isElsewhere ? known : sound.call(this, options)
    } as Runs['create']
  }),
  bug('a namespace finds the run wherever it lives', RunScopes, 'ifNamed', () => {
    return (_, record) => record
  }),
  bug('archived runs are not hidden', Runs, 'list', sound => {
    return function (this: Runs, options = {}) {
      return sound.call(this, { includeArchived: true, ...options })
    }
  }),
  bug('a query begins behind its first millisecond', Runs, 'query', sound => {
    return function (this: Runs, query = {}) {
      const { createdAfter } = query
      if (!Number.isSafeInteger(createdAfter)) return sound.call(this, query)
      return sound.call(this, { ...query, createdAfter: (createdAfter as number) + 1 })
    }
  }),
  bug('added tags replace those before', Runs, 'addTags', sound => {
    return async function (this: Runs, runId: string, tags: readonly string[]) {
      const run = await sound.call(this, runId, tags)
      return Object.freeze({ ...run, tags: Object.freeze([...new Set(tags)]) })
    }
  }),
  bug('a machine may be given a definition without its state', MachineStore, 'define', sound => {
    return async function (this: MachineStore<unknown>, scope, name, definition) {
      try {
        return await sound.call(this, scope, name, definition)
      } catch (error) {
        if ((error as { code?: string }).code !== 'INVALID_OPERATION') throw error
        return this.current(scope, name)
      }
    } as MachineStore<unknown>['define']
  }),
  bug('a transaction that is rolled back commits', OptimisticTransaction, 'rollback', () => {
    return async function (this: OptimisticTransaction) {
      await this.tryCommit()
    }
  }),
  bug('a transaction whose function throws commits all the same', OptimisticTransaction, 'abandon', sound => {
    return function (this: OptimisticTransaction, why) {
      this.tryCommit().catch(() => sound.call(this, why))
    }
  }),
  bug('what a transaction has read is not validated', EmbeddedStore, 'commit', sound => {
    return function (this: EmbeddedStore, { operations }: Commit) {
      return sound.call(this, { operations })
    }
  }),
  bug('ranges that a transaction has read are not validated', EmbeddedStore, 'commit', sound => {
    return function (this: EmbeddedStore, { ranges: _, ...commit }: Commit) {
      return sound.call(this, commit)
    }
  }),
  bug('an update reads one entry too few', EmbeddedStore, 'update', sound => {
    return function (this: EmbeddedStore, reads, step, options) {
      return sound.call(
        this,
        reads,
        (found, ranges) =>
          step(
            found,
            ranges.map(entries => entries.slice(0, -1)),
          ),
        options,
      )
    } as EmbeddedStore['update']
  }),
  bug('a range that is read backwards ends a key too early', KvStore, 'list', sound => {
    return async function (this: KvStore<unknown>, scope, options) {
      const keys = await sound.call(this, scope, options)
      return options?.reverse === true ? Object.freeze(keys.slice(0, -1)) : keys
    }
  }),
  bug('a conditional put forgets its condition', KvStore, 'put', sound => {
    return function (
      this: KvStore<unknown>,
      scope: unknown,
      key: string,
      value: unknown,
      options: PutOptions = {},
    ) {
      const { ifAbsent, ...rest } = options
      return sound.call(this, scope, key, value, typeof ifAbsent === 'boolean' ? rest : options)
    }
  }),
  bug('only the first scope that a transaction has read is validated', EmbeddedStore, 'commit', sound => {
    return function (this: EmbeddedStore, { points = [], ranges = [], operations }: Commit) {
      const first = (points[0] ?? ranges[0])?.scope
      const isFirst = (read: { readonly scope: string }): boolean => read.scope === first
      return sound.call(this, { points: points.filter(isFirst), ranges: ranges.filter(isFirst), operations })
    }
  }),
  bug('a blind put in a transaction conflicts', KvStore, 'put', sound => {
    return async function (
      this: KvStore<unknown>,
      scope: unknown,
      key: string,
      value: unknown,
      options: PutOptions = {},
    ) {
      await this.exists(scope, key)
      return sound.call(this, scope, key, value, options)
    }
  }),
  bug('a commit is two', EmbeddedStore, 'commit', sound => {
    return async function (this: EmbeddedStore, { operations, ...reads }: Commit) {
      const [first, ...rest] = operations
      if (rest.length === 0 || operations.some(({ op }) => op === 'append')) {
        return sound.call(this, { operations, ...reads })
      }
      const outcome = await sound.call(this, { operations: [first], ...reads })
      return outcome.status === 'conflict' ? outcome : sound.call(this, { operations: rest })
    }
  }),
  bug('a write is answered before it is written', EmbeddedStore, 'commit', sound => {
    return function (this: EmbeddedStore, commit: Commit) {
      const { operations } = commit
      if (commit.points !== undefined || operations.some(({ op }) => op === 'append'))
        return sound.call(this, commit)
      void sound.call(this, commit).catch(() => undefined)
      return Promise.resolve({ status: 'committed', version: 1, time: 1, appended: [] })
    }
  }),
  bug('tenants see each other', Annals, 'forTenant', () => {
    return function (this: Annals) {
      return this
    }
  }),
  bug('children of a run come oldest first', Runs, 'children', sound => {
    return async function (this: Runs, runId: string) {
      return Object.freeze([...(await sound.call(this, runId))].reverse())
    }
  }),
]
