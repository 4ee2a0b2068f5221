import { viewOf } from '../disk/disk.ts'

const SLAB_BYTES = 256 * 1024
/** What is longer is not worth the room that it would leave unused. */
const PIECE_BYTES_MAX: number = SLAB_BYTES / 8

/**
 * Memory outside of the heap, in large slabs of which pieces are cut one after the other. The garbage collector copies what
 * lives in the heap, again and again until it is old, but not what is here; a slab goes when all of its pieces have gone.
 */
export class Slabs {
  #slab = Buffer.alloc(0)
  #view = viewOf(this.#slab)
  #used = 0

  /** A piece that `write` has filled, from `at` on; undefined if it is too long. */
  cut(bytes: number, write: (into: Buffer, view: DataView, at: number) => void): Buffer | undefined {
    if (bytes > PIECE_BYTES_MAX) return undefined
    if (this.#used + bytes > this.#slab.length) {
      this.#slab = Buffer.allocUnsafeSlow(SLAB_BYTES)
      this.#view = viewOf(this.#slab)
      this.#used = 0
    }
    const at = this.#used
    write(this.#slab, this.#view, at)
    this.#used += bytes
    return this.#slab.subarray(at, this.#used)
  }
}
