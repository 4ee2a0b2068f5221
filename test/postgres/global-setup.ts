import type { TestProject } from 'vitest/node'
import { skipBecause } from '../skipping.ts'
import { TestServer } from './server.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** The address of the server that all test files share; empty if there is none. */
    readonly postgres: string
  }
}

/**
 * Tests on the shared server need not survive a power failure, so it does not sync. Tests that kill a server start their
 * own, which syncs.
 */
const UNSYNCED = ['fsync=off', 'full_page_writes=off']

/** Provides one server for all test files: that of `ANNALS_TEST_PG`, or a new one. */
export default async function setup({ provide }: TestProject): Promise<(() => Promise<void>) | undefined> {
  const given = process.env['ANNALS_TEST_PG']
  if (given !== undefined) {
    provide('postgres', given)
    return undefined
  }
  const server = await started()
  provide('postgres', server?.connectionString ?? '')
  return server && (() => server.remove())
}

/** Undefined if the tests that need it are skipped. */
async function started(): Promise<TestServer | undefined> {
  try {
    return await TestServer.start(UNSYNCED)
  } catch (error) {
    skipBecause(`PostgreSQL does not start, or is missing (ANNALS_TEST_PG names a server): ${error}`)
    return undefined
  }
}
