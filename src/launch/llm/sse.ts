import { SseReader } from '../../core/sse.ts'

/** Server-sent events of which only the data are of interest. */
export class SseParser {
  readonly #reader = new SseReader()

  /** The data of every event that this piece ends. */
  push(bytes: Uint8Array): string[] {
    return this.#reader.push(bytes).map(({ data }) => data)
  }

  /** The last event, if nobody ended it with an empty line: many servers don't. */
  end(): string[] {
    return this.#reader.end().map(({ data }) => data)
  }
}

export const DONE = '[DONE]'

/** One event with these values as its data. */
export function sseEvent(data: unknown): string {
  return `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`
}
