import { SseReader } from '../../core/sse.ts'

/** Reads the data of server-sent events. */
export class SseParser {
  readonly #reader = new SseReader()

  /** The data of all events that this piece completes. */
  push(bytes: Uint8Array): string[] {
    return this.#reader.push(bytes).map(({ data }) => data)
  }

  /** The last event, which many servers do not end with an empty line. */
  end(): string[] {
    return this.#reader.end().map(({ data }) => data)
  }
}

export const DONE = '[DONE]'

/** An event with this value as its data. */
export function sseEvent(data: unknown): string {
  return `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`
}
