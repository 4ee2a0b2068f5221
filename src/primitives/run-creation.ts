import type { ByteString } from '../core/bytes.ts'
import { utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { checkOptions } from '../core/options.ts'
import { checkTags } from '../core/text.ts'
import type { Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { indexKey, indexRange } from '../engine/indexes.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import type { Write } from '../engine/session.ts'
import type { Entry, Reader } from '../engine/storage.ts'
import { placeIn, type Run } from './run.ts'
import { BY_PARENT, BY_TIME, notFound, runOf, runOperations, stored } from './run-records.ts'
import type { RunName, RunScopes } from './run-scopes.ts'

export interface EnsureRunOptions {
  /** The id or namespace of a run that exists. */
  readonly parentRun?: Scope
  readonly tags?: readonly string[]
  readonly metadata?: Value
}

export interface CreateRunOptions extends EnsureRunOptions {
  /** An id that no other run of the tenant has, or a namespace with such an id. Without it an id is made. */
  readonly runId?: Scope
}

/** How runs come into the index. */
export class RunCreation {
  readonly #database: Database
  readonly #scopes: RunScopes

  constructor(database: Database, scopes: RunScopes) {
    this.#database = database
    this.#scopes = scopes
  }

  /** `RUN_EXISTS` if the id is taken, in whatever app and agent. */
  async create(options: CreateRunOptions): Promise<Run> {
    checkOptions('create', options, ['runId', 'parentRun', 'tags', 'metadata'])
    const { runId = newOrderedId(this.#database.now()), ...rest } = options
    return this.#obtain(runId, rest, exists)
  }

  /** The run as it is, or as it was created just now. `RUN_EXISTS` if it lives in another app or agent than the given. */
  async ensure(run: Scope, options: EnsureRunOptions): Promise<Run> {
    checkOptions('ensure', options, ['parentRun', 'tags', 'metadata'])
    return this.#obtain(run, options, (name, known) => {
      const found = this.#scopes.ifNamed(name, known)
      return found === undefined ? exists(name, known) : runOf(found)
    })
  }

  async #obtain(
    given: Scope,
    { parentRun, tags = [], metadata = {} }: EnsureRunOptions,
    answer: (name: RunName, known: Entry) => Run,
  ): Promise<Run> {
    const name = this.#scopes.named(given)
    const parent = parentRun === undefined ? undefined : this.#scopes.named(parentRun, 'parentRun')
    const now = this.#database.now()
    const run = stored({
      runId: name.runId,
      ...(typeof given === 'string' ? {} : placeIn(given)),
      ...(parent === undefined ? {} : { parentRun: parent.runId }),
      status: 'Active',
      createdAt: now,
      updatedAt: now,
      tags: checkTags(tags),
      metadata,
    })
    const record = this.#scopes.record(name.runId)
    const operations = runOperations(this.#scopes.index, undefined, run)
    const scope = this.#scopes.scopeOfRun(run)
    if (parent === undefined && scope === this.#scopes.byDefault(run.runId)) {
      const { result } = await this.#database.update([record], ([known]) =>
        known === undefined ? { operations, result: run } : { operations: [], result: answer(name, known) },
      )
      return result
    }
    return this.#database.transaction(async tx => {
      const known = await tx.get(record.scope, record.tag, record.key)
      if (known !== undefined) return answer(name, known)
      if (parent !== undefined) await this.#checkParent(tx, run.runId, parent)
      await tx.write([...operations, ...(await notesMoved(tx, this.#scopes, run.runId, scope))])
      return run
    })
  }

  /** The parent exists, and the run is none of its ancestors: an id that was used before may still have children. */
  async #checkParent(tx: Reader, runId: string, parent: RunName): Promise<void> {
    let ancestor = await this.#ancestor(tx, parent)
    if (ancestor === undefined) throw notFound(parent.runId)
    const children = indexRange({ scope: this.#scopes.index, tag: TAGS.run }, BY_PARENT, utf8(runId))
    if ((await tx.scan({ ...children, limit: 1 })).length === 0) return
    while (ancestor?.parentRun !== undefined) {
      const { parentRun }: Run = ancestor
      if (parentRun === runId) {
        const message = `run ${JSON.stringify(runId)} would be its own ancestor`
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
   * The run, read beside the transaction: its tags or metadata may change as often as they like. What the transaction
   * depends on is that it exists, and whose child it is; both stand for as long as its index entry by time does.
   */
  async #ancestor(tx: Reader, name: RunName): Promise<Run | undefined> {
    const { scope, tag, key } = this.#scopes.record(name.runId)
    const entry = this.#scopes.ifNamed(name, await this.#database.get(scope, tag, key))
    const run = entry === undefined ? undefined : runOf(entry)
    const proof = run === undefined ? key : indexKey(BY_TIME, '', run.createdAt, utf8(name.runId))
    return (await tx.get(scope, tag, proof)) === undefined ? undefined : run
  }
}

/**
 * A writer may take the lease of a run, and a producer may choose the ids of its events, before the run exists. The
 * ledger notes that where the run would begin, and it goes with the run to where it is created: a lease that is held
 * must fence writers off there.
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
  throw new AnnalsError('RUN_EXISTS', `there is a run ${JSON.stringify(runId)} already`, { runId })
}
