import { checkOptions, checkSignal } from '../core/options.ts'
import type { Reader } from './storage.ts'

/** Options of what reads for long, such as a verification. */
export interface StoppableOptions {
  /** Aborting it stops the call with the signal's reason. */
  readonly signal?: AbortSignal
}

/** The reader until the signal aborts. Then it rejects, which stops the work that reads from it. */
export function stoppable(reader: Reader, what: string, options: StoppableOptions): Reader {
  checkOptions(what, options, ['signal'])
  const { signal } = options
  checkSignal(signal)
  if (signal === undefined) return reader
  return {
    async get(scope, tag, key) {
      signal.throwIfAborted()
      return reader.get(scope, tag, key)
    },
    async scan(range) {
      signal.throwIfAborted()
      return reader.scan(range)
    },
  }
}
