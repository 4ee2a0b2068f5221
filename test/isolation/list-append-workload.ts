import { AnnalsError } from '../../src/core/errors.ts'
import type { Database } from '../../src/engine/database.ts'
import { TAGS } from '../../src/engine/keys.ts'
import { parseLogEntry } from '../../src/engine/log.ts'
import type { Entry, Range } from '../../src/engine/storage.ts'
import type { ManualTransaction, Transaction } from '../../src/engine/transaction.ts'
import { Random } from '../../src/testing/random.ts'
import type { HistoryStep, TransactionRecord } from './history.ts'

export interface ListAppendOptions {
  readonly seed: number
  readonly transactions: number
  /** The number of concurrent clients. */
  readonly clients: number
  /** A prefix for the ids of transactions and elements. Needed if several processes write one history. */
  readonly name?: string
  /** A clock that all processes of one history share; by default a counter of this process. */
  readonly order?: () => number
}

/** The number of lists in use at the same time. There are few, so that transactions conflict. */
const LISTS_ACTIVE = 6
const LOGS_ACTIVE = 3
/** After this many transactions a new list replaces the oldest one, so that new keys appear during scans. */
const TRANSACTIONS_PER_LIST = 40
const STEPS_MAX = 5
const SCOPE = 'lists'

/**
 * Runs concurrent transactions of all kinds on a few lists. A list is a log, or the value of a key, which a transaction
 * reads, extends and writes back. Returns the history for `checkHistory`, which ends with a read of all lists.
 */
export async function runListAppend(
  database: Database,
  options: ListAppendOptions,
): Promise<TransactionRecord[]> {
  const workload = new Workload(database, options)
  await Promise.all(Array.from({ length: options.clients }, () => workload.runClient()))
  await workload.readEverything()
  return workload.records
}

/** A record while it is being written. */
interface Draft {
  readonly id: string
  outcome: TransactionRecord['outcome']
  readonly begunAt: number
  endedAt?: number
  readonly steps: HistoryStep[]
}

class Workload {
  readonly records: TransactionRecord[] = []
  readonly #database: Database
  readonly #random: Random
  readonly #options: ListAppendOptions
  readonly #order: () => number
  #started = 0
  #ids = 0
  #events = 0

  constructor(database: Database, options: ListAppendOptions) {
    this.#database = database
    this.#options = options
    this.#random = new Random(options.seed)
    this.#order = options.order ?? ((): number => this.#events++)
  }

  async runClient(): Promise<void> {
    const random = this.#random.fork()
    while (this.#started < this.#options.transactions) {
      const window = Math.floor(this.#started++ / TRANSACTIONS_PER_LIST)
      const dice = random.next()
      if (dice < 0.5) await this.#automatic(random, window)
      else if (dice < 0.8) await this.#manual(random, window)
      else if (dice < 0.9) await this.#readOnly(random, window)
      else await this.#oneStep(random, window)
    }
  }

  async readEverything(): Promise<void> {
    const draft = this.#begin()
    const windows = Math.ceil(this.#started / TRANSACTIONS_PER_LIST)
    await this.#database.transaction(
      async transaction => {
        await readLists(transaction, { scope: SCOPE, tag: TAGS.kv }, draft)
        for (let i = 0; i < windows + LOGS_ACTIVE; i++) await readLog(transaction, logName(i), draft)
      },
      { readOnly: true },
    )
    this.#end(draft, 'committed')
    this.records[this.records.length - 1] = { ...draft, isFinal: true }
  }

  /** Runs `transaction`, which retries. Each attempt is its own record. */
  async #automatic(random: Random, window: number): Promise<void> {
    let draft: Draft | undefined
    const isDoomed = random.chance(0.05)
    try {
      await this.#database.transaction(async transaction => {
        if (draft !== undefined) this.#end(draft, 'aborted')
        draft = this.#begin()
        await this.#program(transaction, random, window, draft)
        if (isDoomed) throw new Doomed()
      })
      this.#end(draft!, 'committed')
    } catch (error) {
      this.#end(draft!, outcomeOf(error))
    }
  }

  async #manual(random: Random, window: number): Promise<void> {
    const draft = this.#begin()
    const transaction: ManualTransaction = this.#database.begin()
    try {
      await this.#program(transaction, random, window, draft)
      if (random.chance(0.1)) {
        await transaction.rollback()
        throw new Doomed()
      }
      await transaction.commit()
      this.#end(draft, 'committed')
    } catch (error) {
      this.#end(draft, outcomeOf(error))
    }
  }

  async #readOnly(random: Random, window: number): Promise<void> {
    const draft = this.#begin()
    const read = async (transaction: Transaction): Promise<void> => {
      for (let steps = 2 + random.below(STEPS_MAX); steps > 0; steps--) {
        await readSomething(transaction, random, window, draft)
      }
    }
    await this.#database.transaction(read, { readOnly: true })
    this.#end(draft, 'committed')
  }

  /** Runs `update`, a single step with a declared read. */
  async #oneStep(random: Random, window: number): Promise<void> {
    const draft = this.#begin()
    const key = listName(window + random.below(LISTS_ACTIVE))
    const element = this.#element()
    try {
      const { result } = await this.#database.update([{ scope: SCOPE, tag: TAGS.kv, key }], ([entry]) => {
        const value = extended(entry, element)
        return {
          operations: [{ op: 'put', scope: SCOPE, tag: TAGS.kv, key, value }],
          result: elementsOf(entry),
        }
      })
      draft.steps.push({ kind: 'read', list: key, elements: result }, { kind: 'append', list: key, element })
      this.#end(draft, 'committed')
    } catch (error) {
      draft.steps.push({ kind: 'append', list: key, element })
      this.#end(draft, outcomeOf(error))
    }
  }

  async #program(transaction: Transaction, random: Random, window: number, draft: Draft): Promise<void> {
    for (let steps = 1 + random.below(STEPS_MAX); steps > 0; steps--) {
      const dice = random.next()
      if (dice < 0.4) await this.#appendToList(transaction, random, window, draft)
      else if (dice < 0.55) await this.#appendToLog(transaction, random, window, draft)
      else await readSomething(transaction, random, window, draft)
    }
  }

  async #appendToList(transaction: Transaction, random: Random, window: number, draft: Draft): Promise<void> {
    const key = listName(window + random.below(LISTS_ACTIVE))
    const element = this.#element()
    const entry = await transaction.get(SCOPE, TAGS.kv, key)
    draft.steps.push({ kind: 'read', list: key, elements: elementsOf(entry) })
    // Recorded before the put, because the history must contain every element that may have been written.
    draft.steps.push({ kind: 'append', list: key, element })
    transaction.put(SCOPE, TAGS.kv, key, extended(entry, element))
  }

  async #appendToLog(transaction: Transaction, random: Random, window: number, draft: Draft): Promise<void> {
    const scope = logName(window + random.below(LOGS_ACTIVE))
    const element = this.#element()
    draft.steps.push({ kind: 'append', list: scope, element, isBlind: true })
    await transaction.append({ scope, tag: TAGS.event, body: element, bodyHash: element.padEnd(32, '.') })
  }

  #begin(): Draft {
    const id = `${this.#options.name ?? 'T'}${this.#ids++}`
    return { id, outcome: 'unknown', begunAt: this.#order(), steps: [] }
  }

  #end(draft: Draft, outcome: TransactionRecord['outcome']): void {
    draft.outcome = outcome
    draft.endedAt = this.#order()
    this.records.push(draft as TransactionRecord)
  }

  #element(): string {
    return `${this.#options.name ?? ''}${this.#ids++}`
  }
}

async function readSomething(
  transaction: Transaction,
  random: Random,
  window: number,
  draft: Draft,
): Promise<void> {
  const dice = random.next()
  if (dice < 0.4) {
    const key = listName(window + random.below(LISTS_ACTIVE))
    const entry = await transaction.get(SCOPE, TAGS.kv, key)
    draft.steps.push({ kind: 'read', list: key, elements: elementsOf(entry) })
  } else if (dice < 0.6) {
    await readLog(transaction, logName(window + random.below(LOGS_ACTIVE)), draft)
  } else {
    const first = window + random.below(LISTS_ACTIVE)
    const range: Range = {
      scope: SCOPE,
      tag: TAGS.kv,
      from: listName(first),
      to: listName(first + 1 + random.below(LISTS_ACTIVE)),
      reverse: random.chance(0.3),
      limit: random.chance(0.5) ? 1 + random.below(3) : undefined,
    }
    await readLists(transaction, range, draft)
  }
}

async function readLog(transaction: Transaction, scope: string, draft: Draft): Promise<void> {
  const events = await transaction.scan({ scope, tag: TAGS.event })
  draft.steps.push({ kind: 'read', list: scope, elements: events.map(event => parseLogEntry(event).body) })
}

/** Scans lists. A scan that its limit cut off has read no further than its last entry. */
async function readLists(transaction: Transaction, range: Range, draft: Draft): Promise<void> {
  const entries = await transaction.scan(range)
  const found = entries.map(entry => ({ list: entry.key, elements: elementsOf(entry) }))
  const cut =
    range.limit !== undefined && found.length === range.limit ? found[found.length - 1].list : undefined
  let first = range.from ?? listName(0)
  // Names have a fixed length, so this is the highest name below `to`.
  let last = range.to === undefined ? `${LIST_PREFIX}~` : listName(numberOf(range.to) - 1)
  if (cut !== undefined && range.reverse === true) first = cut
  else if (cut !== undefined) last = cut
  draft.steps.push({ kind: 'scan', first, last, found })
}

const LIST_PREFIX = 'list-'

function listName(number: number): string {
  return LIST_PREFIX + String(number).padStart(8, '0')
}

function numberOf(listName: string): number {
  return Number(listName.slice(LIST_PREFIX.length))
}

function logName(number: number): string {
  return `log-${String(number).padStart(8, '0')}`
}

function elementsOf(entry: Entry | undefined): string[] {
  return entry === undefined ? [] : entry.value.split(' ')
}

function extended(entry: Entry | undefined, element: string): string {
  return entry === undefined ? element : `${entry.value} ${element}`
}

/** Thrown by the workload to abort a transaction. */
class Doomed extends Error {}

function outcomeOf(error: unknown): 'aborted' | 'unknown' {
  if (error instanceof Doomed) return 'aborted'
  if (error instanceof AnnalsError && error.code === 'CONFLICT') return 'aborted'
  if (error instanceof AnnalsError && error.code === 'OUTCOME_UNKNOWN') return 'unknown'
  throw error
}
