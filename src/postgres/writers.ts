import { type ByteString, toBuffer } from '../core/bytes.ts'
import { Connection, type ConnectionSettings } from './connection.ts'
import { STATEMENTS } from './statements.ts'

/**
 * Waits for the commits to a scope that are under way in any process. If there
 * are any, it waits on a separate connection: other statements on the given one
 * may belong to other tenants and must not wait.
 */
export async function waitForWriters(
  connection: Connection,
  settings: ConnectionSettings,
  scope: ByteString,
): Promise<void> {
  const [row] = await connection.run(STATEMENTS.waitForWriters, [toBuffer(scope), false])
  if (row['are_through'] === true) return
  const own = await Connection.open({ ...settings, lockMs: patienceMs(settings) })
  try {
    await own.run(STATEMENTS.waitForWriters, [toBuffer(scope), true])
  } finally {
    own.destroy()
  }
}

/** Longer than a commit of another process takes. A lock that is held longer belongs to a transaction that was left open. */
const HELD_MS = 500

/** The lock time-out on a connection that several tenants share. */
export function heldMs({ timeoutMs }: ConnectionSettings): number {
  return Math.min(HELD_MS, Math.ceil(timeoutMs / 2))
}

/** The lock time-out on a connection that nothing else uses. It is shorter than that of a statement, so the server reports it. */
export function patienceMs({ timeoutMs }: ConnectionSettings): number {
  return Math.ceil(timeoutMs * 0.9)
}
