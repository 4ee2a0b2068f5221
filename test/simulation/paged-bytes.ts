const PAGE_BYTES = 2048
const SLAB_BYTES = 64 * PAGE_BYTES
const ZEROS = new Uint8Array(PAGE_BYTES)

// Pages are cut from slabs, because one ArrayBuffer per page would cost ten times as much as copying the page.
let slab = new ArrayBuffer(SLAB_BYTES)
let slabUsed = 0

function copyOfPage(page: Uint8Array): Uint8Array {
  if (slabUsed === SLAB_BYTES) {
    slab = new ArrayBuffer(SLAB_BYTES)
    slabUsed = 0
  }
  const copy = new Uint8Array(slab, slabUsed, PAGE_BYTES)
  slabUsed += PAGE_BYTES
  // A new slab contains zeros already.
  if (page !== ZEROS) copy.set(page)
  return copy
}

/**
 * The bytes of a file, with cheap forks. Forks share their pages, and a page is copied when one of them writes to it.
 * All pages that were never written are one shared page of zeros.
 */
export class PagedBytes {
  /** The bytes of the last page after `#size` are always zero, so that growing the file needs no write. */
  #pages: Uint8Array[]
  /** For each page, whether no fork shares it. Undefined while the list of pages itself is shared with a fork. */
  #owned: boolean[] | undefined
  #size: number

  private constructor(pages: Uint8Array[], owned: boolean[] | undefined, size: number) {
    this.#pages = pages
    this.#owned = owned
    this.#size = size
  }

  static empty(): PagedBytes {
    return new PagedBytes([], [], 0)
  }

  static of(bytes: Uint8Array): PagedBytes {
    const paged = PagedBytes.empty()
    paged.write(bytes, 0)
    return paged
  }

  get size(): number {
    return this.#size
  }

  fork(): PagedBytes {
    this.#owned = undefined
    return new PagedBytes(this.#pages, undefined, this.#size)
  }

  read(target: Uint8Array, position: number): number {
    const count = Math.min(target.length, this.#size - position)
    if (count <= 0) return 0
    let done = 0
    while (done < count) {
      const page = this.#pages[Math.floor((position + done) / PAGE_BYTES)]
      const start = (position + done) % PAGE_BYTES
      const end = Math.min(PAGE_BYTES, start + count - done)
      target.set(end - start === PAGE_BYTES ? page : page.subarray(start, end), done)
      done += end - start
    }
    return count
  }

  /** Writes the bytes `from` to `to` of `source` at `position`. The file grows if needed. */
  write(source: Uint8Array, position: number, from = 0, to: number = source.length): void {
    if (from >= to) return
    if (position + to - from > this.#size) this.#grow(position + to - from)
    let done = from
    while (done < to) {
      const at = position + done - from
      const start = at % PAGE_BYTES
      const count = Math.min(PAGE_BYTES - start, to - done)
      const page = this.#ownPage(Math.floor(at / PAGE_BYTES))
      page.set(done === 0 && count === source.length ? source : source.subarray(done, done + count), start)
      done += count
    }
  }

  truncate(size: number): void {
    if (size > this.#size) {
      this.#grow(size)
    } else if (size < this.#size) {
      this.#ownList()
      const pages = Math.ceil(size / PAGE_BYTES)
      this.#pages.length = pages
      this.#owned!.length = pages
      const start = size % PAGE_BYTES
      if (start !== 0 && this.#pages[pages - 1] !== ZEROS) this.#ownPage(pages - 1).fill(0, start)
      this.#size = size
    }
  }

  toBuffer(): Buffer {
    const buffer = Buffer.alloc(this.#size)
    this.read(buffer, 0)
    return buffer
  }

  #grow(size: number): void {
    this.#ownList()
    for (let pages = this.#pages.length; pages * PAGE_BYTES < size; pages++) {
      this.#pages.push(ZEROS)
      this.#owned!.push(false)
    }
    this.#size = size
  }

  #ownList(): void {
    if (this.#owned !== undefined) return
    this.#pages = this.#pages.slice()
    this.#owned = new Array<boolean>(this.#pages.length).fill(false)
  }

  #ownPage(index: number): Uint8Array {
    this.#ownList()
    if (!this.#owned![index]) {
      this.#pages[index] = copyOfPage(this.#pages[index])
      this.#owned![index] = true
    }
    return this.#pages[index]
  }
}
