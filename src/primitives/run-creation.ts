import { type ByteString, utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { checkOptions } from '../core/options.ts'
import { checkTags } from '../core/text.ts'
import { encodeGivenFields, joinSorted, type Value } from '../core/value.ts'
import { indexKey, indexRange } from '../engine/indexes.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import type { Session, Write } from '../engine/session.ts'
import type { Entry, Reader } from '../engine/storage.ts'
import { placeIn, type Run, type RunHead } from './run.ts'
import { BY_PARENT, BY_TIME, notFound, recordIn, runOf, runOperations } from './run-records.ts'
import type { RunName, RunScopes } from './run-scopes.ts'

/** The properties of a run that `ensure` creates. */
export interface EnsureRunOptions<M = Value> {
  /** The id or namespace of an existing run. */
  readonly parentRun?: Scope
  /** Labels to find the run by; none by default. */
  readonly tags?: readonly string[]
  /** Any value to store with the run; `{}` by default. */
  readonly metadata?: M
}

/** The properties of a run that `create` creates. */
export interface CreateRunOptions<M = Value> extends EnsureRunOptions<M> {
  /** An id that no other run of the tenant has, or a namespace with such an id; a new id by default. */
  readonly runId?: Scope
}

/** Runs the steps of a creation as one: in a transaction of their own, or in the transaction that the session is. */
type Transact = <T>(work: (tx: Session) => Promise<T>) => Promise<T>

/** Creates runs in the index. */
export class RunCreation {
  readonly #session: Session
  readonly #scopes: RunScopes
  readonly #transact: Transact

  constructor(session: Session, scopes: RunScopes, transact: Transact) {
    this.#session = session
    this.#scopes = scopes
    this.#transact = transact
  }

  /** Throws `RUN_EXISTS` if the id is taken, in whatever app and agent. */
  async create<M>(options: CreateRunOptions<unknown>): Promise<Run<M>> {
    checkOptions('create', options, ['runId', 'parentRun', 'tags', 'metadata'])
    const { runId = newOrderedId(this.#session.now()), ...rest } = options
    return this.#obtain<M>(runId, rest, exists)
  }

  /** The run of this id, created if it is missing. Throws `RUN_EXISTS` if it lives in another app or agent. */
  async ensure<M>(run: Scope, options: EnsureRunOptions<unknown>): Promise<Run<M>> {
    checkOptions('ensure', options, ['parentRun', 'tags', 'metadata'])
    return this.#obtain<M>(run, options, (name, known) => {
      const found = this.#scopes.ifNamed(name, known)
      return found === undefined ? exists(name, known) : runOf<M>(found)
    })
  }

  async #obtain<M>(
    given: Scope,
    { parentRun, tags = [], metadata = {} }: EnsureRunOptions<unknown>,
    answer: (name: RunName, known: Entry) => Run<M> | Promise<Run<M>>,
  ): Promise<Run<M>> {
    const name = this.#scopes.named(given)
    const parent = parentRun === undefined ? undefined : this.#scopes.named(parentRun, 'parentRun')
    const now = this.#session.now()
    const fields = encodeGivenFields({
      runId: name.runId,
      ...(typeof given === 'string' ? {} : placeIn(given)),
      ...(parent === undefined ? {} : { parentRun: parent.runId }),
      status: 'Active',
      createdAt: now,
      updatedAt: now,
      tags: checkTags(tags),
      metadata,
    })
    const value = joinSorted(fields instanceof Promise ? await fields : fields)
    const created = recordIn({ value })
    const { runId } = name
    const record = this.#scopes.record(runId)
    const operations = runOperations(this.#scopes.index, undefined, created)
    const scope = this.#scopes.scopeOfRun(created.head)
    const create = async (tx: Session, moved: readonly Write[] = []): Promise<Entry | undefined> => {
      const { result } = await tx.update([record], ([found]) => ({
        operations: found === undefined ? [...operations, ...moved] : [],
        result: found,
      }))
      return result
    }
    const isSimple = parent === undefined && scope === this.#scopes.byDefault(runId)
    const known = isSimple
      ? await create(this.#session)
      : await this.#transact(async tx => {
          // An update, because it also refuses a read-only transaction.
          const { result: found } = await tx.update([record], ([at]) => ({ operations: [], result: at }))
          if (found !== undefined) return found
          if (parent !== undefined) await this.#checkParent(tx, runId, parent)
          return create(tx, await notesMoved(tx, this.#scopes, runId, scope))
        })
    return known === undefined ? runOf<M>({ value }) : answer(name, known)
  }

  /** Checks that the parent exists and is not a descendant of the run: children of a deleted run keep its id as their parent. */
  async #checkParent(tx: Reader, runId: string, parent: RunName): Promise<void> {
    let ancestor = await this.#ancestor(tx, parent)
    if (ancestor === undefined) throw notFound(parent.runId)
    const children = indexRange({ scope: this.#scopes.index, tag: TAGS.run }, BY_PARENT, utf8(runId))
    if ((await tx.scan({ ...children, limit: 1 })).length === 0) return
    while (ancestor?.parentRun !== undefined) {
      const { parentRun }: RunHead = ancestor
      if (parentRun === runId) {
        const message = `run ${JSON.stringify(runId)} would become its own ancestor`
        throw new AnnalsError('INVALID_ARGUMENT', message, {
          name: 'parentRun',
          runId,
          parentRun: parent.runId,
        })
      }
      ancestor = await this.#ancestor(tx, { runId: parentRun, scope: undefined })
    }
  }

  /**
   * Reads a run outside of a transaction of its own, so that changes of its tags or metadata cause no conflict. It depends
   * only on the run's existence and its parent. Both stay the same while the run's index entry by time exists, so the
   * transaction reads that entry.
   */
  async #ancestor(tx: Reader, name: RunName): Promise<RunHead | undefined> {
    const { scope, tag, key } = this.#scopes.record(name.runId)
    const entry = this.#scopes.ifNamed(name, await this.#session.get(scope, tag, key))
    const run = entry === undefined ? undefined : recordIn(entry).head
    const proof = run === undefined ? key : indexKey(BY_TIME, '', run.createdAt, utf8(name.runId))
    return (await tx.get(scope, tag, proof)) === undefined ? undefined : run
  }
}

/**
 * The writes that move a run's early notes to the scope in which the run is created. Before a run exists, a writer may take its
 * lease and a producer may choose event ids. The ledger stores both in the scope in which the run would begin. A lease
 * must fence off other writers in the run's actual scope too.
 */
export async function notesMoved(
  tx: Reader,
  scopes: RunScopes,
  runId: string,
  to: ByteString,
): Promise<Write[]> {
  const from = scopes.byDefault(runId)
  if (from === to) return []
  const tag = TAGS.projection
  const notes = await tx.scan({ scope: from, tag })
  return notes.flatMap(({ key, value }): Write[] => [
    { op: 'put', scope: to, tag, key, value },
    { op: 'delete', scope: from, tag, key },
  ])
}

function exists({ runId }: RunName, _known: Entry): never {
  throw new AnnalsError('RUN_EXISTS', `run ${JSON.stringify(runId)} already exists`, { runId })
}
