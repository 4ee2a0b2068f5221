/** An event as it was sent; its name is `message` unless it has another. */
export interface SseEvent {
  readonly event: string
  /** The last one that was given, by this event or one before it. */
  readonly id: string
  readonly data: string
}

/**
 * Server-sent events, as the HTML standard reads them: lines end with CR, LF or both, an empty line ends an event. A piece
 * may end anywhere, also between the bytes of a character. There is nothing of Node in it.
 */
export class SseReader {
  readonly #decoder = new TextDecoder('utf-8')
  #line = ''
  #data: string[] = []
  #event = ''
  #id = ''
  /** A CR may be half of a CR LF whose LF comes with the next piece. */
  #endedWithCr = false

  /** Every event that this piece ends. */
  push(bytes: Uint8Array): SseEvent[] {
    return this.#read(this.#decoder.decode(bytes, { stream: true }))
  }

  /** The last event, if nobody ended it with an empty line: many servers don't. */
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
