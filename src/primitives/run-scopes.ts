import { textStart } from '../core/attached-bytes.ts'
import type { ByteString } from '../core/bytes.ts'
import { invalidArgument } from '../core/errors.ts'
import { DEFAULT_PART, isShared, type Scope, scopeOf } from '../engine/keys.ts'
import type { Entry, Operation, Place, Reader } from '../engine/storage.ts'
import type { Run } from './run.ts'
import { notFound, recordIn, runPlace } from './run-records.ts'

const SEEN_MAX = 10_000

/** The name by which a caller asks for a run: its id, wherever the run lives, or its namespace. */
export interface RunName {
  readonly runId: string
  /** The scope in which the run must live; undefined if the caller gave only an id. */
  readonly scope: ByteString | undefined
}

/**
 * Finds the scope in which a run lives. Run ids are unique in a tenant, and the run's record in the tenant's index holds its
 * app and agent, so one point read finds the scope. A run without a record begins in app and agent `default`.
 */
export class RunScopes {
  /** The scope of the tenant's run index. */
  readonly index: ByteString
  readonly #tenant: string
  readonly #scopeOf: (scope: Scope) => ByteString
  /** A cache: run id → scope, for runs outside of app and agent `default`. It may be outdated. */
  readonly #seen = new Map<string, ByteString>()

  constructor(tenant: string, index: ByteString, scopeOf: (scope: Scope) => ByteString) {
    this.#tenant = tenant
    this.index = index
    this.#scopeOf = scopeOf
  }

  /** Checks a run id or namespace that a caller gave. `name` is the argument's name in errors. */
  named(run: Scope, name = 'runId'): RunName {
    if (typeof run === 'string') {
      // Throws if no data can be stored under this id.
      this.#scopeOf(run)
      return { runId: run, scope: undefined }
    }
    if (typeof run !== 'object' || run === null) {
      throw invalidArgument(name, 'must be a run id or a namespace')
    }
    const scope = this.#scopeOf(run)
    if (isShared(run)) {
      throw invalidArgument(name, 'must not be a shared namespace, which has no run')
    }
    return { runId: run.run, scope }
  }

  /** Where the run's record is stored. */
  record(runId: string): Place {
    return runPlace(this.index, runId)
  }

  /** The scope of a run in app and agent `default`. */
  byDefault(runId: string): ByteString {
    return this.#scopeOf(runId)
  }

  /** The scope in which the run most likely lives. Only its record tells for certain. */
  guess({ runId, scope }: RunName): ByteString {
    return scope ?? this.#seen.get(runId) ?? this.byDefault(runId)
  }

  /** The scope that a run's record names; without a record, the scope in which the run would begin. */
  scopeIn(runId: string, record: Entry | undefined): ByteString {
    if (record === undefined || !namesPlace(record)) {
      this.#seen.delete(runId)
      return this.byDefault(runId)
    }
    const scope = this.scopeOfRun(recordIn(record).head)
    if (this.#seen.size === SEEN_MAX) this.#seen.clear()
    this.#seen.set(runId, scope)
    return scope
  }

  /** The scope of a run whose app and agent are known. */
  scopeOfRun({
    runId,
    app = DEFAULT_PART,
    agent = DEFAULT_PART,
  }: Pick<Run, 'runId' | 'app' | 'agent'>): ByteString {
    return scopeOf({ tenant: this.#tenant, app, agent, run: runId })
  }

  /** The record, if the run lives in the scope that the name asks for; undefined otherwise. */
  ifNamed({ runId, scope }: RunName, record: Entry | undefined): Entry | undefined {
    return scope === undefined || scope === this.scopeIn(runId, record) ? record : undefined
  }

  /** The scope in which the named run lives or would begin. A namespace always means its own scope. */
  async find(reader: Reader, { runId, scope }: RunName): Promise<ByteString> {
    if (scope !== undefined) return scope
    const place = this.record(runId)
    return this.scopeIn(runId, await reader.get(place.scope, place.tag, place.key))
  }
}

/**
 * Whether a record names an app or agent. Members are in the order of their names, so these two come first. Most records
 * have neither and need not be decoded.
 */
function namesPlace({ value }: Entry): boolean {
  const from = textStart(value)
  return value.startsWith('{"agent":', from) || value.startsWith('{"app":', from)
}

/** The operations and the result of a step. */
interface Stepped<T, O> {
  readonly operations: readonly O[]
  readonly result: T
}

/** A database, whose steps may drop scopes, or a session, whose steps may not. */
interface Stepping<O> {
  update<T>(
    reads: readonly Place[],
    step: (found: readonly (Entry | undefined)[]) => Stepped<T, O>,
  ): Promise<{ readonly result: T }>
}

/** The result of a step, or the scope in which the step has to run instead. */
type Located<T> = { readonly value: T } | { readonly scope: ByteString }

/**
 * Runs one step over a run's record and over entries of the scope in which the run lives. The scope is guessed first; if the
 * record names another one, the step runs again there. Throws `RUN_NOT_FOUND` if the caller gave a namespace in which
 * the run does not live.
 */
export async function stepInRun<T, O extends Operation>(
  session: Stepping<O>,
  scopes: RunScopes,
  name: RunName,
  placesIn: (scope: ByteString) => readonly Place[],
  step: (
    record: Entry | undefined,
    found: readonly (Entry | undefined)[],
    scope: ByteString,
  ) => Stepped<T, O>,
): Promise<T> {
  const { runId } = name
  for (let scope = scopes.guess(name); ; ) {
    const guess = scope
    const reads = [scopes.record(runId), ...placesIn(guess)]
    const { result } = await session.update<Located<T>>(reads, ([record, ...found]) => {
      const home = scopes.scopeIn(runId, record)
      if (name.scope !== undefined && name.scope !== home) throw notFound(runId)
      if (home !== guess) return { operations: [], result: { scope: home } }
      const { operations, result: value } = step(record, found, home)
      return { operations, result: { value } }
    })
    if ('value' in result) return result.value
    scope = result.scope
  }
}
