import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { runInSlices } from '../core/slices.ts'
import { checkPlace, checkRange } from '../engine/operations.ts'
import type { Entry, Range, Snapshot } from '../engine/storage.ts'
import { isGone } from './change.ts'
import type { Committer } from './committer.ts'
import type { Forest } from './forest.ts'
import { collectRest, collectSlice, sliceFor } from './long-scan.ts'
import { spanOf } from './newest.ts'

/** All data as of a commit. It holds a generation of the forest, which keeps the roots of that time until `release`. */
export class ForestSnapshot implements Snapshot {
  readonly version: number
  readonly time: number
  readonly clock: number
  readonly #forest: Forest
  readonly #generation: number
  readonly #check: () => void
  #released = false

  constructor(forest: Forest, committer: Committer, check: () => void) {
    this.version = committer.version
    this.clock = committer.clock()
    this.time = committer.now(this.clock)
    this.#forest = forest
    this.#generation = forest.snapshot()
    this.#check = check
  }

  async get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    checkPlace({ scope, tag, key })
    this.#checkHeld()
    const tree = this.#forest.treeIfAny(scope, tag)
    const entry = tree === undefined ? undefined : this.#forest.findAt(tree, this.#generation, key)
    return entry === undefined || isGone(entry, this.clock) ? undefined : entry
  }

  async scan(range: Range): Promise<readonly Entry[]> {
    checkRange(range)
    this.#checkHeld()
    const span = spanOf(range, this.clock)
    const slice = sliceFor(span)
    if (slice !== undefined) {
      await slice
      this.#checkHeld()
    }
    const tree = this.#forest.treeIfAny(range.scope, range.tag)
    if (tree === undefined) return []
    if (tree.recovered !== undefined)
      await runInSlices(this.#forest.takeInSteps(tree), () => this.#checkHeld())
    const root = this.#forest.rootAt(tree, this.#generation)
    const out: Entry[] = []
    const next = collectSlice(this.#forest, root, span, out)
    if (next !== undefined) await collectRest(this.#forest, root, span, out, next, () => this.#checkHeld())
    return out
  }

  release(): void {
    this.#released = true
    this.#forest.release(this.#generation)
  }

  #checkHeld(): void {
    this.#check()
    if (this.#released) throw new AnnalsError('INVALID_OPERATION', 'the snapshot was released')
  }
}
