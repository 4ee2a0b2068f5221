import type { ByteString } from '../core/bytes.ts'
import { Connection, type ConnectionSettings } from './connection.ts'
import { bytes } from './reads.ts'
import { STATEMENTS } from './statements.ts'

/**
 * Waits for the commits to a scope that are under way in any process. If there
 * are some it waits on a connection of its own: what is sent on the given one
 * may be about other tenants, and must not wait behind it.
 */
export async function waitForWriters(
  connection: Connection,
  settings: ConnectionSettings,
  scope: ByteString,
): Promise<void> {
  const [row] = await connection.run(STATEMENTS.waitForWriters, [bytes(scope), false])
  if (row['are_through'] === true) return
  const own = await Connection.open({ ...settings, lockMs: patienceMs(settings) })
  try {
    await own.run(STATEMENTS.waitForWriters, [bytes(scope), true])
  } finally {
    own.destroy()
  }
}

/** How long to wait for a lock where nobody waits behind: so that the server says `TIMEOUT` before we give up on it. */
export function patienceMs({ timeoutMs }: ConnectionSettings): number {
  return Math.ceil(timeoutMs * 0.9)
}
