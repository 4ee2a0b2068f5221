/** A server-sent event. */
export interface SseEvent {
  /** The event's name; `message` if the server sent none. */
  readonly event: string
  /** The last id that the server sent, with this event or an earlier one. */
  readonly id: string
  readonly data: string
}

/**
 * Parses server-sent events as the HTML standard defines them: lines end with CR, LF or both, and an empty line ends an event.
 * A piece may end anywhere, even within a character. Runs in browsers too.
 */
export class SseReader {
  readonly #decoder = new TextDecoder('utf-8')
  #line = ''
  #data: string[] = []
  #event = ''
  #id = ''
  /** A CR may be half of a CR LF whose LF comes with the next piece. */
  #endedWithCr = false

  /** The events that are complete with this piece. */
  push(bytes: Uint8Array): SseEvent[] {
    return this.#read(this.#decoder.decode(bytes, { stream: true }))
  }

  /** The last event. Many servers do not end it with an empty line. */
  end(): SseEvent[] {
    return this.#read(`${this.#decoder.decode()}\n\n`)
  }

  #read(piece: string): SseEvent[] {
    const events: SseEvent[] = []
    const text = this.#endedWithCr && piece.startsWith('\n') ? piece.slice(1) : piece
    if (piece !== '') this.#endedWithCr = piece.endsWith('\r')
    const lines = text.split(/\r\n|\r|\n/)
    const last = lines.pop() ?? ''
    for (const rest of lines) {
      const line = this.#line + rest
      this.#line = ''
      if (line === '') this.#dispatch(events)
      else this.#field(line)
    }
    this.#line += last
    return events
  }

  #field(line: string): void {
    const colon = line.indexOf(':')
    const name = colon < 0 ? line : line.slice(0, colon)
    const rest = colon < 0 ? '' : line.slice(colon + 1)
    const value = rest.startsWith(' ') ? rest.slice(1) : rest
    if (name === 'data') this.#data.push(value)
    else if (name === 'event') this.#event = value
    else if (name === 'id' && !value.includes('\0')) this.#id = value
  }

  #dispatch(events: SseEvent[]): void {
    if (this.#data.length > 0) {
      events.push({ event: this.#event || 'message', id: this.#id, data: this.#data.join('\n') })
    }
    this.#data = []
    this.#event = ''
  }
}
