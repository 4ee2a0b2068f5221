/**
 * One reader of the database for all streams with the same source. It reads and encodes each event once and passes the same
 * bytes to all streams, so a thousand streams cost the database as much as one.
 */

/** A position in the source; positions are compared with `<`. */
export type Position = number | string

/** An encoded event and its position. */
export interface HubItem {
  readonly position: Position
  readonly text: string
}

/** Receives events. Must not block: a listener that cannot accept events now reads them from the database later. */
export interface HubListener {
  /** All events after `previous`, up to and including `last`. */
  take(previous: Position, last: Position, bytes: Uint8Array): void
  /** The source has failed; no more events follow. */
  end(error: unknown): void
}

/** Reads events after a position, without end. */
export type HubSource = (after: Position, signal: AbortSignal) => AsyncIterable<HubItem>

/** How many listeners are served before the event loop gets a turn. */
const LISTENERS_AT_ONCE = 64
const CHUNK_CHARS_MAX = 256 * 1024

const ENCODER = new TextEncoder()

export class EventHub {
  readonly #source: HubSource
  readonly #ended: () => void
  readonly #listeners = new Set<HubListener>()
  #stop: AbortController | undefined

  /** Calls `ended` when the last listener has left. */
  constructor(source: HubSource, ended: () => void) {
    this.#source = source
    this.#ended = ended
  }

  /** Adds a listener. The first one determines where reading starts. */
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
        // Events of one turn of the event loop are sent together.
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
    // A listener that joins meanwhile reads these events from the database.
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
