import type { AnnalsClient } from '../client.ts'
import { AnnalsError } from '../index.ts'
import type { LaunchDatabase } from '../launch.ts'

/** Lets a launch mirror itself to a server. The launch's own log stays a file, so it needs no events there. */
export function launchDatabaseOf({ ledger, runs }: AnnalsClient): LaunchDatabase {
  const refuse = (): never => {
    throw new AnnalsError('INVALID_OPERATION', 'the log of a launch that writes to a server is a file')
  }
  return { ledger, runs, events: { append: refuse, iterate: refuse } }
}
