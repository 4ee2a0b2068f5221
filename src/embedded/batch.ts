import type { Change } from './change.ts'
import type { Forest, Tree } from './forest.ts'
import { withoutPending, withPending } from './pending.ts'
import { FrameWriter } from './wal-frame.ts'

interface Waiter {
  readonly answer: unknown
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: unknown) => void
}

/** Commits that share one write and one sync, with the callers that wait for them. Until then their changes are pending. */
export class Batch {
  readonly frame: FrameWriter = new FrameWriter()
  #trees: Tree[] = []
  #changes: Change[] = []
  #waiters: Waiter[] = []

  get isEmpty(): boolean {
    return this.#waiters.length === 0
  }

  #begunAt = 0

  /** Begins a commit. The changes that follow belong to it. */
  begin(version: number, time: number): void {
    this.#begunAt = this.#changes.length
    this.frame.begin(version, time)
  }

  /** Removes the commit that was begun last. Returns the trees that it touched, for `restore`. */
  abandon(): readonly Tree[] {
    this.frame.abandon()
    this.#changes.length = this.#begunAt
    return this.#trees.splice(this.#begunAt)
  }

  /** Marks this batch's changes to the given trees as pending again. Earlier batches must be restored first. */
  restore(trees: ReadonlySet<Tree>): void {
    for (const [i, tree] of this.#trees.entries()) {
      if (!trees.has(tree)) continue
      hold(tree, this.#changes[i])
      // The next append finds the head again among the pending changes.
      tree.head = undefined
    }
  }

  /** Adds a change to the commit and to the frame for the log. */
  change(tree: Tree, change: Change): void {
    this.frame.change(tree.scope, tree.tag, change)
    this.imply(tree, change)
  }

  /** Adds a change that is not written to the log, because recovery derives it from the change before it. */
  imply(tree: Tree, change: Change): void {
    this.#trees.push(tree)
    this.#changes.push(change)
    hold(tree, change)
  }

  /** Resolves with the answer when the batch is done. */
  wait<T>(answer: T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#waiters.push({ answer, resolve: resolve as (answer: unknown) => void, reject })
    })
  }

  /** Applies the changes to the trees, where readers see them. Returns the tree of each change. */
  apply(forest: Forest): readonly Tree[] {
    const trees = this.#trees
    const changes = this.#changes
    for (let i = 0; i < trees.length; i++) {
      const tree = trees[i]
      const change = changes[i]
      forest.apply(tree, change)
      if (tree.drop === change) tree.drop = undefined
      tree.pending = withoutPending(tree.pending, change)
    }
    return trees
  }

  /** The last change of the last commit. */
  get last(): Change | undefined {
    return this.#changes.at(-1)
  }

  /** Removes all pending changes of the trees. Later batches may build on these, so they must be discarded as well. */
  discard(): void {
    for (const tree of this.#trees) {
      tree.pending = undefined
      tree.drop = undefined
      tree.head = undefined
    }
  }

  /** Resolves all waiting callers, or rejects them with the error, and empties the batch for its next use. */
  end(error?: unknown): void {
    this.#trees = emptied(this.#trees)
    this.#changes = emptied(this.#changes)
    this.frame.reset()
    for (const waiter of this.#waiters) {
      if (error === undefined) waiter.resolve(waiter.answer)
      else waiter.reject(error)
    }
    this.#waiters = emptied(this.#waiters)
  }
}

/** A longer array is replaced by a new one, so that a large batch does not keep its memory. */
const KEPT_MAX = 16

/** Empties a list. A short one keeps its memory for the next batch, which is usually as short. */
function emptied<T>(list: T[]): T[] {
  if (list.length > KEPT_MAX) return []
  // Setting the length to zero would release the memory.
  while (list.length > 0) list.pop()
  return list
}

/** Marks the change as pending. A drop replaces everything that was pending before it. */
function hold(tree: Tree, change: Change): void {
  if (change.removes === 'tree') {
    tree.drop = change
    tree.pending = undefined
    tree.head = undefined
    return
  }
  tree.pending = withPending(tree.pending, change)
}
