import type { Operation, TreeId } from '../engine/storage.ts'
import { treeAddress } from './address.ts'
import { feedOf } from './batch.ts'

interface Subscription {
  /** As the server knows it: a log is one with its head and its dedupe keys. */
  readonly tree: TreeId
  readonly call: () => void
  readonly timer: NodeJS.Timeout
}

/**
 * Subscribers who have time: they are called at once after what this process
 * commits, and now and then in case that another has committed something. So
 * the server has nothing to tell them, which would cost every commit of
 * everybody more than some commits cost.
 */
export class OwnChanges {
  readonly #subscriptions = new Set<Subscription>()

  subscribe(tree: TreeId, call: () => void, othersWithinMs: number): () => void {
    const { scope, tag } = treeAddress(tree)
    const timer = setInterval(call, othersWithinMs)
    timer.unref()
    const subscription = { tree: { scope, tag }, call, timer }
    this.#subscriptions.add(subscription)
    return () => this.#end(subscription)
  }

  /** What was committed just now. */
  note(operations: readonly Operation[]): void {
    for (const { tree, call } of this.#subscriptions) {
      if (operations.some(operation => touches(operation, tree))) call()
    }
  }

  /** Calls everybody once more: there will be nothing else. */
  close(): void {
    for (const subscription of [...this.#subscriptions]) {
      this.#end(subscription)
      queueMicrotask(subscription.call)
    }
  }

  #end(subscription: Subscription): void {
    clearInterval(subscription.timer)
    this.#subscriptions.delete(subscription)
  }
}

function touches(operation: Operation, { scope, tag }: TreeId): boolean {
  if (operation.op === 'append' && operation.feed === scope && feedOf(operation, scope).tag === tag)
    return true
  return operation.scope === scope && (operation.op === 'drop' || operation.tag === tag)
}
