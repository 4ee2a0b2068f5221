import type { TransactionRecord } from './history.ts'

export interface Dependency {
  readonly kind: 'ww' | 'wr' | 'rw' | 'rt'
  readonly from: TransactionRecord
  readonly to: TransactionRecord
  /** The list that causes the dependency; empty for `rt`. */
  readonly list: string
}

interface Edge {
  readonly kind: Dependency['kind']
  readonly to: number
  readonly list: string
}

/** The number of starting points in the search for a short cycle. More would take longer and hardly find shorter ones. */
const STARTS_MAX = 32

/** The order in which transactions must have happened. */
export class DependencyGraph {
  /** A transaction, or undefined for a moment in real time. */
  readonly #nodes: (TransactionRecord | undefined)[] = []
  readonly #edges: Edge[][] = []
  readonly #indexes = new Map<TransactionRecord, number>()
  size = 0

  /** Adds a dependency, unless it is on the transaction itself or on none. */
  add(
    kind: Dependency['kind'],
    from: TransactionRecord | undefined,
    to: TransactionRecord | undefined,
    list: string,
  ): void {
    if (from === undefined || to === undefined || from === to) return
    this.#connect(this.#indexOf(from), { kind, to: this.#indexOf(to), list })
  }

  /**
   * Adds the real-time order: a transaction that had ended before another began precedes it. Instead of one edge per
   * pair, each end has an edge to a moment, each moment to the next one, and the last moment before a beginning to that
   * beginning.
   */
  addRealTime(records: readonly TransactionRecord[]): void {
    const events = records
      .filter(record => record.outcome === 'committed')
      .flatMap(record => [
        { at: record.begunAt, record, isEnd: false },
        { at: record.endedAt, record, isEnd: true },
      ])
      .filter((event): event is typeof event & { at: number } => event.at !== undefined)
      // At equal times neither transaction precedes the other, so beginnings are sorted first.
      .sort((a, b) => a.at - b.at || Number(a.isEnd) - Number(b.isEnd))
    let moment: number | undefined
    for (const { record, isEnd } of events) {
      const index = this.#indexOf(record)
      if (!isEnd) {
        if (moment !== undefined) this.#connect(moment, { kind: 'rt', to: index, list: '' })
        continue
      }
      const next = this.#addNode(undefined)
      if (moment !== undefined) this.#connect(moment, { kind: 'rt', to: next, list: '' })
      this.#connect(index, { kind: 'rt', to: next, list: '' })
      moment = next
    }
  }

  /** One short cycle of each strongly connected component. */
  cycles(): Dependency[][] {
    return this.#knots().map(knot => this.#cycleIn(new Set(knot)))
  }

  #indexOf(record: TransactionRecord): number {
    const known = this.#indexes.get(record)
    if (known !== undefined) return known
    const index = this.#addNode(record)
    this.#indexes.set(record, index)
    return index
  }

  #addNode(record: TransactionRecord | undefined): number {
    this.#edges.push([])
    return this.#nodes.push(record) - 1
  }

  #connect(from: number, edge: Edge): void {
    this.#edges[from].push(edge)
    this.size++
  }

  /**
   * The strongly connected components with more than one node, by Tarjan's algorithm. Histories are long, so it uses
   * its own stack.
   */
  #knots(): number[][] {
    const knots: number[][] = []
    const order = new Array<number>(this.#nodes.length).fill(-1)
    const low = new Array<number>(this.#nodes.length).fill(0)
    const isOnStack = new Array<boolean>(this.#nodes.length).fill(false)
    const stack: number[] = []
    let visited = 0
    for (let root = 0; root < this.#nodes.length; root++) {
      if (order[root] >= 0) continue
      const calls: { node: number; next: number }[] = []
      const enter = (node: number): void => {
        order[node] = low[node] = visited++
        isOnStack[node] = true
        stack.push(node)
        calls.push({ node, next: 0 })
      }
      enter(root)
      while (calls.length > 0) {
        const call = calls[calls.length - 1]
        const { node } = call
        if (call.next < this.#edges[node].length) {
          const { to } = this.#edges[node][call.next++]
          if (order[to] < 0) enter(to)
          else if (isOnStack[to]) low[node] = Math.min(low[node], order[to])
          continue
        }
        calls.pop()
        const caller = calls[calls.length - 1]
        if (caller !== undefined) low[caller.node] = Math.min(low[caller.node], low[node])
        if (low[node] !== order[node]) continue
        const knot = stack.splice(stack.lastIndexOf(node))
        for (const member of knot) isOnStack[member] = false
        if (knot.length > 1) knots.push(knot)
      }
    }
    return knots
  }

  #cycleIn(knot: ReadonlySet<number>): Dependency[] {
    let shortest: Dependency[] | undefined
    for (const start of [...knot].filter(node => this.#nodes[node] !== undefined).slice(0, STARTS_MAX)) {
      const cycle = this.#cycleThrough(start, knot)
      if (shortest === undefined || cycle.length < shortest.length) shortest = cycle
    }
    return shortest ?? []
  }

  /** Searches breadth-first for a path back to `start`. */
  #cycleThrough(start: number, knot: ReadonlySet<number>): Dependency[] {
    const cameFrom = new Map<number, { readonly from: number; readonly edge: Edge }>()
    const queue = [start]
    for (let i = 0; i < queue.length && !cameFrom.has(start); i++) {
      for (const edge of this.#edges[queue[i]]) {
        if (!knot.has(edge.to) || cameFrom.has(edge.to)) continue
        cameFrom.set(edge.to, { from: queue[i], edge })
        queue.push(edge.to)
      }
    }
    const path: { readonly node: number; readonly edge: Edge }[] = []
    for (let node = start; ; ) {
      const step = cameFrom.get(node)
      if (step === undefined) return []
      path.unshift({ node: step.from, edge: step.edge })
      node = step.from
      if (node === start) return this.#withoutMoments(path)
    }
  }

  /** Replaces the moments of a path with direct dependencies between transactions. */
  #withoutMoments(path: readonly { readonly node: number; readonly edge: Edge }[]): Dependency[] {
    const dependencies: Dependency[] = []
    let from = this.#nodes[path[0].node]
    for (const { edge } of path) {
      const to = this.#nodes[edge.to]
      if (from === undefined || to === undefined) continue
      dependencies.push({ kind: edge.kind, from, to, list: edge.list })
      from = to
    }
    return dependencies
  }
}
