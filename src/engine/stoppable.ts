import { checkOptions, checkSignal } from '../core/options.ts'
import type { Reader } from './storage.ts'

/** The options of a long call, such as a verification. */
export interface StoppableOptions {
  /** Aborting it stops the call, which rejects with the signal's reason. */
  readonly signal?: AbortSignal
}

/** Wraps a reader so that its reads reject once the signal has aborted, which stops the caller's work. */
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
