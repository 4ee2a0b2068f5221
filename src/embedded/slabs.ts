import { viewOf } from '../disk/disk.ts'

const SLAB_BYTES = 256 * 1024
/** Longer pieces would leave too much of a slab unused. */
const PIECE_BYTES_MAX: number = SLAB_BYTES / 8

/**
 * Allocates pieces of memory from large slabs outside of the JavaScript heap, where the garbage collector does not copy
 * them. A slab is released when none of its pieces is in use.
 */
export class Slabs {
  #slab = Buffer.alloc(0)
  #view = viewOf(this.#slab)
  #used = 0

  /** Allocates a piece, which `write` fills from `at` on; undefined if it is too long. */
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
