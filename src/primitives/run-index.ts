import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkFlag, checkOptions } from '../core/options.ts'
import type { Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import type { Operation } from '../engine/storage.ts'
import type { Tombstone } from './run.ts'
import { RunCreation } from './run-creation.ts'
import { runOperations } from './run-records.ts'
import type { RunScopes } from './run-scopes.ts'
import { allTombstones, buried, iterateTombstones, type MarkedTombstone, newGrave } from './tombstones.ts'
import { headPlace, stepInExisting, TransactionRuns } from './transaction-runs.ts'

/** How a run is deleted. */
export interface DeleteRunOptions {
  /** Allows deleting a run that has ledger records. Needs a `reason`. */
  readonly purgeLedger?: boolean
  /** Why the run is deleted; kept in its tombstone. */
  readonly reason?: string
}

/** The run index of a tenant: the status, tags, metadata and parent of each run. */
export class Runs<M = Value> extends TransactionRuns<M> {
  readonly #database: Database

  /** @internal Use `open`. */
  constructor(database: Database, scopes: RunScopes) {
    super(database, scopes, new RunCreation(database, scopes, work => database.transaction(work)))
    this.#database = database
  }

  /**
   * Deletes the run and all its data, in one commit whatever its size, and returns the tombstone that remains. The id may be
   * used again. A run with ledger records is deleted only with `purgeLedger` and a `reason`.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.events.append('r1', 'note', 'hello')
   * const { events } = await db.runs.delete('r1', { reason: 'asked to forget' })
   * events // → 1
   * await db.events.length('r1') // → 0
   */
  async delete(runId: Scope, options: DeleteRunOptions = {}): Promise<Tombstone> {
    const { purgeLedger, reason } = checkDelete(options)
    const index = this.scopes.index
    const grave = newGrave(index, this.#database.now())
    const tombstone = await stepInExisting<Tombstone, Operation>(
      this.#database,
      this.scopes,
      runId,
      scope => [headPlace(scope, TAGS.event), headPlace(scope, TAGS.ledger)],
      ({ head: run }, [events, ledger], scope) => {
        if (ledger !== undefined && !purgeLedger) {
          const message = `run ${JSON.stringify(run.runId)} has ledger records: pass purgeLedger and a reason to delete it`
          throw new AnnalsError('INVALID_OPERATION', message, { runId: run.runId })
        }
        const { tombstone: left, put } = buried(grave, run, events, reason)
        return {
          operations: [...runOperations(index, run, undefined), { op: 'drop', scope }, put],
          result: left,
        }
      },
    )
    return Object.freeze(tombstone)
  }

  /**
   * Returns the tombstones of deleted runs, newest first.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.runs.delete('r1')
   * const [tombstone] = await db.runs.tombstones()
   * tombstone.runId // → 'r1'
   */
  async tombstones(): Promise<readonly Tombstone[]> {
    return allTombstones(this.#database, this.scopes.index)
  }

  /** @internal The tombstones after a given one, each with a mark that tells it from others of its millisecond. */
  iterateTombstones(after?: Omit<MarkedTombstone, 'tombstone'>): AsyncGenerator<MarkedTombstone, void, void> {
    return iterateTombstones(this.#database, this.scopes.index, after)
  }

  /**
   * Returns the same calls, with metadata of type `T`.
   * @example
   * // In TypeScript: const runs = db.runs.of<{ model: string }>()
   * const runs = db.runs.of()
   * const { runId } = await runs.create({ metadata: { model: 'small' } })
   * const { metadata } = await runs.get(runId)
   * metadata.model // → 'small'
   */
  of<T>(): Runs<T> {
    return this as Runs<unknown> as Runs<T>
  }
}

function checkDelete(options: DeleteRunOptions): DeleteRunOptions {
  checkOptions('delete', options, ['purgeLedger', 'reason'])
  const { purgeLedger, reason } = options
  checkFlag('purgeLedger', purgeLedger)
  if (reason !== undefined && (typeof reason !== 'string' || reason === '')) {
    throw invalidArgument('reason', 'must be a non-empty string', reason)
  }
  if (purgeLedger === true && reason === undefined)
    throw invalidArgument('reason', 'is needed with purgeLedger')
  return options
}
