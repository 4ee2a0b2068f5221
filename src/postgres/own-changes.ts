import type { Operation, TreeId } from '../engine/storage.ts'
import { feedOf, treeAddress } from './address.ts'

interface Subscription {
  /** The tree on the server: a log, its head and its dedupe keys are one. */
  readonly tree: TreeId
  readonly call: () => void
  readonly timer: NodeJS.Timeout
}

/**
 * Subscribers that need not hear of other processes at once. They are called
 * after each commit of this process, and periodically in case another process has
 * committed. So no commit has to send notifications for them, which can cost more
 * than the commit itself.
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

  /** Calls the subscribers of the trees that a commit has changed. */
  note(operations: readonly Operation[]): void {
    for (const { tree, call } of this.#subscriptions) {
      if (operations.some(operation => touches(operation, tree))) call()
    }
  }

  /** Calls every subscriber a last time. */
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
