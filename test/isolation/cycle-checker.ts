import { type Dependency, DependencyGraph } from './dependency-graph.ts'
import type { ListRead, TransactionRecord } from './history.ts'

export type AnomalyKind =
  | 'aborted read'
  | 'intermediate read'
  | 'unwritten element'
  | 'repeated element'
  | 'own write not read'
  | 'diverging lists'
  | 'lost update'
  | 'write cycle'
  | 'circular information flow'
  | 'read skew'
  | 'write skew'
  | 'stale read'

interface Anomaly {
  readonly kind: AnomalyKind
  readonly message: string
  readonly transactions: readonly string[]
}

export interface HistoryReport {
  readonly transactions: number
  readonly committed: number
  readonly aborted: number
  readonly lists: number
  readonly elements: number
  readonly dependencies: number
  readonly anomalies: readonly Anomaly[]
}

interface Writer {
  readonly record: TransactionRecord
  /** Whether this is the transaction's last element in the list. */
  isLast: boolean
}

/**
 * Checks whether a history of concurrent transactions was serializable. Transactions read lists and append unique
 * elements. A list shows the order of its writers, and each read shows which of them it saw. Together they show which
 * transaction A must precede which transaction B:
 *
 *   ww  A's element is right before B's in a list
 *   wr  B read a list that ended with A's element
 *   rw  A read a list just before B's element was added to it
 *   rt  A had ended before B began
 *
 * A cycle of such dependencies is an anomaly, because no serial order explains the history.
 */
export function checkHistory(records: readonly TransactionRecord[]): HistoryReport {
  return new Checker(records).check()
}

class Checker {
  readonly #records: readonly TransactionRecord[]
  readonly #anomalies: Anomaly[] = []
  /** list → element → its writer. */
  readonly #writers = new Map<string, Map<string, Writer>>()
  /** list → its elements in the order that every reader must have seen. */
  readonly #orders = new Map<string, readonly string[]>()
  #listNames: readonly string[] = []
  #elements = 0

  constructor(records: readonly TransactionRecord[]) {
    this.#records = records
  }

  check(): HistoryReport {
    this.#indexAppends()
    const reads = this.#records
      .filter(record => record.outcome === 'committed')
      .map(record => ({ record, lists: this.#readsOf(record) }))
    for (const { lists } of reads) for (const read of lists) this.#extendOrder(read)
    for (const { record, lists } of reads) for (const read of lists) this.#checkRead(record, read)
    const graph = this.#graphOf(reads)
    this.#checkCycles(graph)
    const outcomes = this.#records.map(record => record.outcome)
    return {
      transactions: this.#records.length,
      committed: outcomes.filter(outcome => outcome === 'committed').length,
      aborted: outcomes.filter(outcome => outcome === 'aborted').length,
      lists: this.#listNames.length,
      elements: this.#elements,
      dependencies: graph.size,
      anomalies: this.#anomalies,
    }
  }

  #indexAppends(): void {
    for (const record of this.#records) {
      const latest = new Map<string, Writer>()
      for (const step of record.steps) {
        if (step.kind !== 'append') continue
        const writers = this.#writers.get(step.list) ?? new Map<string, Writer>()
        this.#writers.set(step.list, writers)
        const writer: Writer = { record, isLast: true }
        const before = latest.get(step.list)
        if (before !== undefined) before.isLast = false
        latest.set(step.list, writer)
        writers.set(step.element, writer)
        this.#elements++
      }
    }
    this.#listNames = [...this.#writers.keys()].sort()
  }

  /**
   * The elements of other transactions that this one read. Its own elements must be at the end of a list. They are
   * checked and removed.
   */
  #readsOf(record: TransactionRecord): ListRead[] {
    const own = new Map<string, string[]>()
    const reads: ListRead[] = []
    const addRead = (list: string, elements: readonly string[]): void => {
      const expected = own.get(list) ?? []
      const rest = elements.length - expected.length
      if (expected.some((element, i) => elements[rest + i] !== element)) {
        this.#report('own write not read', [record], `${list}: ${brief(elements)} without ${brief(expected)}`)
      }
      reads.push({ kind: 'read', list, elements: elements.slice(0, Math.max(0, rest)) })
    }
    for (const step of record.steps) {
      if (step.kind === 'read') addRead(step.list, step.elements)
      else if (step.kind === 'scan') {
        const found = new Map(step.found.map(({ list, elements }) => [list, elements]))
        for (const list of this.#namesBetween(step.first, step.last)) addRead(list, found.get(list) ?? [])
      } else if (step.isBlind !== true) {
        own.set(step.list, [...(own.get(step.list) ?? []), step.element])
      }
    }
    return reads
  }

  #namesBetween(first: string, last: string): readonly string[] {
    const bound = (isPast: (name: string) => boolean): number => {
      let [low, high] = [0, this.#listNames.length]
      while (low < high) {
        const middle = (low + high) >>> 1
        if (isPast(this.#listNames[middle])) high = middle
        else low = middle + 1
      }
      return low
    }
    return this.#listNames.slice(
      bound(name => name >= first),
      bound(name => name > last),
    )
  }

  #extendOrder({ list, elements }: ListRead): void {
    if (elements.length > (this.#orders.get(list)?.length ?? 0)) this.#orders.set(list, elements)
  }

  #checkRead(record: TransactionRecord, { list, elements }: ListRead): void {
    const order = this.#orders.get(list) ?? []
    const writers = this.#writers.get(list)
    if (elements.some((element, i) => element !== order[i])) {
      this.#report('diverging lists', [record], `${list}: ${brief(elements)} is no part of ${brief(order)}`)
    }
    if (new Set(elements).size !== elements.length) {
      this.#report('repeated element', [record], `${list}: ${brief(elements)}`)
    }
    for (const element of elements) {
      const writer = writers?.get(element)
      if (writer === undefined) this.#report('unwritten element', [record], `${list}: ${element}`)
      else if (writer.record.outcome === 'aborted') {
        this.#report('aborted read', [writer.record, record], `${list}: ${element}`)
      }
    }
    const last = writers?.get(elements[elements.length - 1])
    if (last !== undefined && !last.isLast && last.record !== record) {
      this.#report('intermediate read', [last.record, record], `${list}: ${brief(elements)}`)
    }
    if (record.isFinal !== true) return
    for (const [element, writer] of writers ?? []) {
      if (writer.record.outcome !== 'committed' || elements.includes(element)) continue
      this.#report('lost update', [writer.record], `${list}: ${element} is not in ${brief(elements)}`)
    }
  }

  #graphOf(
    reads: readonly { readonly record: TransactionRecord; readonly lists: readonly ListRead[] }[],
  ): DependencyGraph {
    const graph = new DependencyGraph()
    for (const [list, order] of this.#orders) {
      const writers = this.#writers.get(list)
      for (let i = 1; i < order.length; i++) {
        graph.add('ww', writers?.get(order[i - 1])?.record, writers?.get(order[i])?.record, list)
      }
    }
    for (const { record, lists } of reads) {
      for (const { list, elements } of lists) {
        const writers = this.#writers.get(list)
        graph.add('wr', writers?.get(elements[elements.length - 1])?.record, record, list)
        const next = this.#orders.get(list)?.[elements.length]
        if (next !== undefined) graph.add('rw', record, writers?.get(next)?.record, list)
      }
    }
    return graph
  }

  /** Looks for cycles without real time first. Most cycles could also be explained with real time, but less clearly. */
  #checkCycles(graph: DependencyGraph): void {
    for (const cycle of graph.cycles()) this.#reportCycle(cycle)
    if (this.#anomalies.length > 0) return
    graph.addRealTime(this.#records)
    for (const cycle of graph.cycles()) this.#reportCycle(cycle)
  }

  #reportCycle(cycle: readonly Dependency[]): void {
    const steps = cycle.map(
      ({ kind, from, to, list }) => `${from.id} -${kind}${list && ` ${list}`}→ ${to.id}`,
    )
    this.#report(cycleKind(cycle), [...new Set(cycle.map(dependency => dependency.from))], steps.join(', '))
  }

  #report(kind: AnomalyKind, records: readonly TransactionRecord[], message: string): void {
    this.#anomalies.push({ kind, message, transactions: records.map(record => record.id) })
  }
}

function cycleKind(cycle: readonly Dependency[]): AnomalyKind {
  const count = (kind: Dependency['kind']): number => cycle.filter(step => step.kind === kind).length
  if (count('rt') > 0) return 'stale read'
  if (count('rw') > 1) return 'write skew'
  if (count('rw') === 1) return 'read skew'
  return count('wr') > 0 ? 'circular information flow' : 'write cycle'
}

function brief(elements: readonly string[]): string {
  const shown = elements.slice(-4).join(' ')
  return elements.length > 4 ? `[… ${shown}]` : `[${shown}]`
}
