import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import type { Database } from '../engine/database.ts'
import { DEFAULT_PART, isShared, type Scope, scopeOf } from '../engine/keys.ts'
import type { Entry, Place, Reader, Step } from '../engine/storage.ts'
import type { Run } from './run.ts'
import { notFound, runOf, runPlace } from './run-records.ts'

const SEEN_MAX = 10_000

/** A run as a caller names it: by its id, wherever it lives, or by its namespace. */
export interface RunName {
  readonly runId: string
  /** The scope in which the run must live; undefined if it may live anywhere. */
  readonly scope: ByteString | undefined
}

/**
 * Finds the scope in which a run lives. Run ids are unique per tenant, and the
 * run's record in the tenant's index says in which app and agent the run is, so
 * one point read finds it. A run that has no record yet would begin in app and
 * agent `default`.
 */
export class RunScopes {
  /** The scope of the tenant's run index. */
  readonly index: ByteString
  readonly #tenant: string
  readonly #scopeOf: (scope: Scope) => ByteString
  /** By id, the scopes of runs outside of app and agent `default`, as they were when they were looked up last. */
  readonly #seen = new Map<string, ByteString>()

  constructor(tenant: string, index: ByteString, scopeOf: (scope: Scope) => ByteString) {
    this.#tenant = tenant
    this.index = index
    this.#scopeOf = scopeOf
  }

  /** Checks the run id or namespace that a caller gave. */
  named(run: Scope, name = 'runId'): RunName {
    if (typeof run === 'string') {
      // It has to be an id that data can be stored under.
      this.#scopeOf(run)
      return { runId: run, scope: undefined }
    }
    if (typeof run !== 'object' || run === null) {
      throw new AnnalsError('INVALID_ARGUMENT', `${name} must be a run id or a namespace`, { name })
    }
    const scope = this.#scopeOf(run)
    if (isShared(run)) {
      throw new AnnalsError('INVALID_ARGUMENT', `${name} must not be a shared namespace: it has no run`, {
        name,
      })
    }
    return { runId: run.run, scope }
  }

  /** Where the run's record is. */
  record(runId: string): Place {
    return runPlace(this.index, runId)
  }

  /** The scope of a run in app and agent `default`. */
  byDefault(runId: string): ByteString {
    return this.#scopeOf(runId)
  }

  /** The scope in which the run most likely lives. Only its record is sure. */
  guess({ runId, scope }: RunName): ByteString {
    return scope ?? this.#seen.get(runId) ?? this.byDefault(runId)
  }

  /** The scope that a run's record names; without a record, the one in which the run would begin. */
  scopeIn(runId: string, record: Entry | undefined): ByteString {
    if (record === undefined || !namesPlace(record)) {
      this.#seen.delete(runId)
      return this.byDefault(runId)
    }
    const scope = this.scopeOfRun(runOf(record))
    if (this.#seen.size === SEEN_MAX) this.#seen.clear()
    this.#seen.set(runId, scope)
    return scope
  }

  scopeOfRun({
    runId,
    app = DEFAULT_PART,
    agent = DEFAULT_PART,
  }: Pick<Run, 'runId' | 'app' | 'agent'>): ByteString {
    return scopeOf({ tenant: this.#tenant, app, agent, run: runId })
  }

  /** The record, if the run lives where the name says; undefined otherwise. */
  ifNamed({ runId, scope }: RunName, record: Entry | undefined): Entry | undefined {
    return scope === undefined || scope === this.scopeIn(runId, record) ? record : undefined
  }

  /** The scope in which the named run lives, or in which it would begin; that of the namespace, if one was given. */
  async find(reader: Reader, { runId, scope }: RunName): Promise<ByteString> {
    if (scope !== undefined) return scope
    const place = this.record(runId)
    return this.scopeIn(runId, await reader.get(place.scope, place.tag, place.key))
  }
}

/**
 * Whether a record names an app or agent. The members of a record are in the order of their names, so these come first;
 * nearly all records have neither, and need not be decoded, however much metadata they hold.
 */
function namesPlace({ value }: Entry): boolean {
  return value.startsWith('{"agent":') || value.startsWith('{"app":')
}

/** What a step came to, or the scope in which it has to look. */
type Located<T> = { readonly value: T } | { readonly scope: ByteString }

/**
 * One step over entries of the scope in which a run lives, and over the run's record, which says which scope that is. The
 * scope is guessed, and the step repeated if the guess was wrong. `RUN_NOT_FOUND` if the run does not live in the
 * namespace that was given.
 */
export async function stepInRun<T>(
  database: Database,
  scopes: RunScopes,
  name: RunName,
  placesIn: (scope: ByteString) => readonly Place[],
  step: (
    record: Entry | undefined,
    found: readonly (Entry | undefined)[],
    scope: ByteString,
  ) => ReturnType<Step<T>>,
): Promise<T> {
  const { runId } = name
  for (let scope = scopes.guess(name); ; ) {
    const guess = scope
    const reads = [scopes.record(runId), ...placesIn(guess)]
    const { result } = await database.update<Located<T>>(reads, ([record, ...found]) => {
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
