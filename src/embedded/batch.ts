import type { Change } from './change.ts'
import type { Forest, Tree } from './forest.ts'
import { withoutPending, withPending } from './pending.ts'
import { FrameWriter } from './wal-frame.ts'

interface Waiter {
  readonly answer: unknown
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: unknown) => void
}

/** Commits that wait for one write and one sync, and who waits for them. Until then their changes are pending. */
export class Batch {
  readonly frame: FrameWriter = new FrameWriter()
  #trees: Tree[] = []
  #changes: Change[] = []
  #waiters: Waiter[] = []

  get isEmpty(): boolean {
    return this.#waiters.length === 0
  }

  #begunAt = 0

  /** Begins a commit; its changes follow. */
  begin(version: number, time: number): void {
    this.#begunAt = this.#changes.length
    this.frame.begin(version, time)
  }

  /** Takes back the commit that was begun last; answers the trees that it has touched, for `restore`. */
  abandon(): readonly Tree[] {
    this.frame.abandon()
    this.#changes.length = this.#begunAt
    return this.#trees.splice(this.#begunAt)
  }

  /** Makes the changes to these trees pending again, after those of earlier batches. */
  restore(trees: ReadonlySet<Tree>): void {
    for (const [i, tree] of this.#trees.entries()) {
      if (!trees.has(tree)) continue
      hold(tree, this.#changes[i])
      // Found again from what is pending.
      tree.head = undefined
    }
  }

  change(tree: Tree, change: Change): void {
    this.frame.change(tree.scope, tree.tag, change)
    this.imply(tree, change)
  }

  /** A change that follows from the one before it: recovery finds it again, so the log need not hold it. */
  imply(tree: Tree, change: Change): void {
    this.#trees.push(tree)
    this.#changes.push(change)
    hold(tree, change)
  }

  /** Resolves with the answer once the batch is through. */
  wait<T>(answer: T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#waiters.push({ answer, resolve: resolve as (answer: unknown) => void, reject })
    })
  }

  /** Brings the changes into the trees, where readers see them; answers those that changed. */
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

  /** Of the last commit. */
  get last(): Change | undefined {
    return this.#changes.at(-1)
  }

  /** Takes the changes back: they never happened. So did none that came after and saw them. */
  discard(): void {
    for (const tree of this.#trees) {
      tree.pending = undefined
      tree.drop = undefined
      tree.head = undefined
    }
  }

  /** Answers everybody, with an error if there is one, and is as new. */
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

/** Room for more than this is given back. */
const KEPT_MAX = 16

/** A list with nothing in it. A short one keeps its room for the next batch: mostly that is as short. */
function emptied<T>(list: T[]): T[] {
  if (list.length > KEPT_MAX) return []
  // To set the length to zero would give the room back.
  while (list.length > 0) list.pop()
  return list
}

/** The change is pending from now on. */
function hold(tree: Tree, change: Change): void {
  if (change.removes === 'tree') {
    tree.drop = change
    tree.pending = undefined
    tree.head = undefined
    return
  }
  tree.pending = withPending(tree.pending, change)
}
