/**
 * Server-sent events, as the HTML standard reads them: lines end with CR, LF
 * or both, an empty line ends an event, only `data` is of interest here. A
 * piece may end anywhere, also between the bytes of a character.
 */
export class SseParser {
  readonly #decoder = new TextDecoder('utf-8')
  #line = ''
  #data: string[] = []
  /** A CR may be half of a CR LF whose LF comes with the next piece. */
  #endedWithCr = false

  /** The data of every event that this piece ends. */
  push(bytes: Uint8Array): string[] {
    return this.#read(this.#decoder.decode(bytes, { stream: true }))
  }

  /** The last event, if nobody ended it with an empty line: many servers don't. */
  end(): string[] {
    return this.#read(`${this.#decoder.decode()}\n\n`)
  }

  #read(piece: string): string[] {
    const events: string[] = []
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
    if (name !== 'data') return
    const value = colon < 0 ? '' : line.slice(colon + 1)
    this.#data.push(value.startsWith(' ') ? value.slice(1) : value)
  }

  #dispatch(events: string[]): void {
    if (this.#data.length > 0) events.push(this.#data.join('\n'))
    this.#data = []
  }
}

export const DONE = '[DONE]'

/** One event with these values as its data. */
export function sseEvent(data: unknown): string {
  return `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`
}
