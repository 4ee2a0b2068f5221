import type { AnnalsClient } from '../client.ts'
import { AnnalsError } from '../index.ts'
import type { LaunchDatabase } from '../launch.ts'

/** A server's database for a launch to show itself in; the launch's own log is a file. */
export function launchDatabaseOf({ ledger, runs }: AnnalsClient): LaunchDatabase {
  const refuse = (): never => {
    throw new AnnalsError('INVALID_OPERATION', 'the log of a launch that writes to a server is a file')
  }
  return { ledger, runs, events: { append: refuse, iterate: refuse } }
}
