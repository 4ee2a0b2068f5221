import { isRunsCall, type SingleCall, type TransactionStep } from './steps.ts'
import type { TransactionOutcome } from './subject.ts'
import type { Outcome } from './world.ts'

/** A call, and its result if the caller received one. */
export interface UnderWay {
  readonly call: SingleCall | TransactionStep
  outcome: Outcome | TransactionOutcome | undefined
}

/**
 * The orders in which concurrent calls may have happened: all permutations of all subsets that contain every answered
 * call. If no two calls affect each other, one order of each subset is enough.
 */
export function orders(calls: readonly UnderWay[]): UnderWay[][] {
  const all: UnderWay[][] = []
  const anyOrder = calls.some((a, i) => calls.some((b, j) => i < j && meet(a.call, b.call)))
  const grow = (order: UnderWay[], rest: readonly UnderWay[]): void => {
    if (rest.every(({ outcome }) => outcome === undefined)) all.push(order)
    for (const [i, call] of rest.entries()) {
      grow([...order, call], anyOrder ? rest.toSpliced(i, 1) : rest.slice(i + 1))
      // An answered call must not be left out.
      if (!anyOrder && call.outcome !== undefined) break
    }
  }
  grow([], calls)
  return all
}

const READS =
  /^(get|getVersioned|exists|list|entries|read|readRange|head|length|iterate|tail|readByType|verifyChain|current|isTerminal|can|definition|query.*|children|tree|count|tombstones|stats)$/

function meet(a: UnderWay['call'], b: UnderWay['call']): boolean {
  if (a.tenant !== b.tenant || (reads(a) && reads(b))) return false
  if ('do' in a || 'do' in b) return true
  if (isRunsCall(a) !== isRunsCall(b)) return [a, b].some(({ name }) => name === 'delete' || name === 'drop')
  return isRunsCall(a) || isRunsCall(b) || (a.scope === b.scope && a.on === b.on)
}

function reads(call: UnderWay['call']): boolean {
  return !('do' in call) && READS.test(call.name)
}
