import type pg from 'pg'
import { AnnalsError } from '../core/errors.ts'

let driver: typeof pg | undefined

/** Loads `pg`, an optional peer dependency. It is imported on first use, so that its absence gets a helpful error. */
export async function loadDriver(): Promise<typeof pg> {
  if (driver !== undefined) return driver
  try {
    driver = (await import('pg')).default
    return driver
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
    const message = 'annals/postgres needs the package pg, which is not installed: npm install pg'
    throw new AnnalsError('INVALID_OPERATION', message, { package: 'pg' }, error)
  }
}
