/**
 * One reader of the database for all streams that follow the same thing. It reads each record once, writes it out once,
 * and hands the same bytes to everybody; so a record costs the database as much for a thousand streams as for one.
 */

/** A place in what is followed; compared with `<`. */
export type Position = number | string

/** A record as it goes into a stream, and its place. */
export interface HubItem {
  readonly position: Position
  readonly text: string
}

/** Who gets what comes. Nobody may wait in it: who can't take it now, reads it from the database later. */
export interface HubListener {
  /** All that there is behind `previous`, up to and including `last`. */
  take(previous: Position, last: Position, bytes: Uint8Array): void
  /** Nothing comes any more. */
  end(error: unknown): void
}

/** Reads from behind `after` on, for ever. */
export type HubSource = (after: Position, signal: AbortSignal) => AsyncIterable<HubItem>

/** So many are served at a time before others get their turn. */
const LISTENERS_AT_ONCE = 64
const CHUNK_CHARS_MAX = 256 * 1024

const ENCODER = new TextEncoder()

export class EventHub {
  readonly #source: HubSource
  readonly #ended: () => void
  readonly #listeners = new Set<HubListener>()
  #stop: AbortController | undefined

  /** `ended` is called when the last listener has left. */
  constructor(source: HubSource, ended: () => void) {
    this.#source = source
    this.#ended = ended
  }

  /** From now on it hears all that comes; the first one says from where on. */
  join(listener: HubListener, position: Position): void {
    this.#listeners.add(listener)
    if (this.#stop !== undefined) return
    this.#stop = new AbortController()
    void this.#follow(position, this.#stop.signal)
  }

  leave(listener: HubListener): void {
    if (!this.#listeners.delete(listener) || this.#listeners.size > 0) return
    this.#stop?.abort()
    this.#stop = undefined
    this.#ended()
  }

  async #follow(start: Position, signal: AbortSignal): Promise<void> {
    let [previous, last, text] = [start, start, '']
    const flush = async (): Promise<void> => {
      if (text === '') return
      const [from, to, bytes] = [previous, last, ENCODER.encode(text)]
      previous = last
      text = ''
      await this.#deliver(from, to, bytes, signal)
    }
    let turn: Promise<void> | undefined
    const send = async (): Promise<void> => {
      do {
        // What comes within a turn of the event loop goes out together.
        await nextTurn()
        await flush()
      } while (text !== '')
      turn = undefined
    }
    try {
      for await (const item of this.#source(start, signal)) {
        if (signal.aborted) return
        if (item.position <= last) continue
        text += item.text
        last = item.position
        turn ??= send()
        if (text.length > CHUNK_CHARS_MAX) await turn
      }
    } catch (error) {
      await turn
      for (const listener of [...this.#listeners]) listener.end(error)
    }
  }

  async #deliver(previous: Position, last: Position, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    let count = 0
    // Who joins meanwhile reads from the database what it is too late for.
    for (const listener of [...this.#listeners]) {
      if (signal.aborted) return
      if (this.#listeners.has(listener)) listener.take(previous, last, bytes)
      if (++count % LISTENERS_AT_ONCE === 0) await nextTurn()
    }
  }
}

function nextTurn(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
