import { statSync } from 'node:fs'
import { type AnnalsClient, createClient } from '../client.ts'
import { type Annals, AnnalsError, open } from '../index.ts'
import { serverHolding } from './holder.ts'
import { safeText } from './safe-text.ts'
import { localSource, remoteSource, type Source } from './source.ts'
import type { Terminal } from './terminal.ts'

/** How a command line names its store. */
export interface StoreOptions {
  readonly data: string
  readonly postgres?: string
  readonly schema?: string
  readonly server?: string
  readonly token?: string
  readonly tenant: string
}

const TENANT_DEFAULT = 'default'

/** Opens what the options name, works with it, and closes it. */
export async function reading<T>(
  options: StoreOptions,
  terminal: Terminal,
  work: (source: Source) => Promise<T>,
): Promise<T> {
  return withSource(await openSource(options, terminal, false), work)
}

/** The same, where the index of runs has to tell of every record: who appended last may have ended before it did. */
export async function readingIndex<T>(
  options: StoreOptions,
  terminal: Terminal,
  work: (source: Source) => Promise<T>,
): Promise<T> {
  return withSource(await openSource(options, terminal, true), work)
}

async function withSource<T>(source: Source, work: (source: Source) => Promise<T>): Promise<T> {
  try {
    return await work(source)
  } finally {
    await source.close()
  }
}

/** The store in the folder; or the server that has it open, for only one process can have it. */
async function openSource(options: StoreOptions, terminal: Terminal, isSettled: boolean): Promise<Source> {
  checkOne(options)
  if (options.server !== undefined) return remoteSource(clientOf(options, options.server))
  if (options.postgres !== undefined) {
    const db = await openOnPostgres(options, { readOnly: true })
    if (!isSettled || (await db.ledger.isSettled())) return localSource(db, true)
    await db.close()
    const writing = await openOnPostgres(options)
    await writing.ledger.settle()
    return localSource(writing, true)
  }
  try {
    return localSource(await (isSettled ? openSettled(options, terminal) : openFolder(options)), false)
  } catch (error) {
    if (!(error instanceof AnnalsError) || error.code !== 'LOCKED') throw error
    return remoteSource(clientOf(options, await serverHolding(options, terminal, error)))
  }
}

/** The store itself, for who writes; a folder is made if it is missing. */
export async function openStore(options: StoreOptions): Promise<Annals> {
  checkOne(options)
  const { data, postgres, server, tenant } = options
  if (server !== undefined) {
    const message = 'this command needs the store itself: give --data or --postgres, not --server'
    throw new AnnalsError('INVALID_ARGUMENT', message)
  }
  if (postgres !== undefined) return openOnPostgres(options)
  checkFolder(data)
  return open({ path: data, tenant }).catch((error: unknown) => {
    if (!(error instanceof AnnalsError) || error.code !== 'LOCKED') throw error
    const message = `${data} is open in another process, such as a server: stop that one first, as only one can write to a folder at a time`
    throw new AnnalsError('LOCKED', message, error.details, error)
  })
}

/** For commands that write a little: the store itself, or the server that has it. With `make`, a missing store is made. */
export async function openStoreOrServer(
  options: StoreOptions,
  terminal: Terminal,
  { make }: { readonly make: boolean },
): Promise<{ readonly db: Annals } | { readonly client: AnnalsClient }> {
  checkOne(options)
  if (options.server !== undefined) return { client: clientOf(options, options.server) }
  try {
    // Opened for writing, it would be made: a misspelt folder would look like an empty store.
    if (!make && options.postgres === undefined) await (await openFolder(options)).close()
    return { db: await openStore(options) }
  } catch (error) {
    if (!(error instanceof AnnalsError) || error.code !== 'LOCKED') throw error
    return { client: clientOf(options, await serverHolding(options, terminal, error)) }
  }
}

/** A command reads most things once: what it keeps of them is of no use to it. */
const CACHE_BYTES = 8 * 1024 * 1024

async function openFolder({ data, tenant }: StoreOptions): Promise<Annals> {
  if (!checkFolder(data)) throw noStore(data)
  const db = await open({ path: data, tenant, readOnly: true, cacheBytes: CACHE_BYTES })
  if (db.stats().storeId !== undefined) return db
  await db.close()
  throw noStore(data)
}

function noStore(data: string): AnnalsError {
  const message = `there is no store in ${data}: name another folder with --data, or make a store to look at with \`annals demo\``
  return new AnnalsError('IO_ERROR', message, { path: data })
}

/** Only read, unless there is something to bring along first. */
async function openSettled(options: StoreOptions, terminal: Terminal): Promise<Annals> {
  const { data, tenant } = options
  const db = await openFolder(options)
  if (await db.ledger.isSettled()) return db
  await db.close()
  const writing = await open({ path: data, tenant, cacheBytes: CACHE_BYTES }).catch(undefinedIfUnwritable)
  if (writing !== undefined && (await writing.ledger.settle())) return writing
  await writing?.close()
  terminal.note(
    `${safeText(data)} can't be written to: what its last records say of a status is not in this list`,
  )
  return openFolder(options)
}

function undefinedIfUnwritable(error: unknown): undefined {
  const { code } = error instanceof AnnalsError ? error : { code: undefined }
  if (code !== 'IO_ERROR' && code !== 'READ_ONLY' && code !== 'DISK_FULL') throw error
}

/** Whether there is something, which has to be a folder. */
function checkFolder(data: string): boolean {
  const found = statSync(data, { throwIfNoEntry: false })
  if (found === undefined || found.isDirectory()) return found !== undefined
  const message = `${data} is a file: --data names the folder of a store`
  throw new AnnalsError('INVALID_ARGUMENT', message, { path: data })
}

/** Brings its schema up to date, unless it is only read. */
export async function openOnPostgres(
  { postgres, schema, tenant }: StoreOptions,
  { readOnly = false }: { readonly readOnly?: boolean } = {},
): Promise<Annals> {
  const { openPostgres } = await import('../postgres.ts').catch(missingPg)
  const connectionString = postgres as string
  const options = { connectionString, tenant, readOnly, ...(schema === undefined ? {} : { schema }) }
  return openPostgres(options).catch((error: unknown) => {
    // To a command, a schema that is not there is a store that is not there.
    const isMissing = error instanceof AnnalsError && error.details['schema'] !== undefined
    if (!isMissing || error.code !== 'INVALID_ARGUMENT') throw error
    const message = `there is no store in schema ${error.details['schema']} of this database: --schema names another one, and \`annals serve\` makes one`
    throw new AnnalsError('IO_ERROR', message, error.details, error)
  })
}

function missingPg(error: unknown): never {
  if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
  const message = 'a store on PostgreSQL takes the package pg: npm install pg'
  throw new AnnalsError('INVALID_OPERATION', message, {}, error)
}

/** People wait: what does not answer soon does not answer. */
const RETRIES = 2

function clientOf({ token, tenant }: StoreOptions, url: string): AnnalsClient {
  if (tenant !== TENANT_DEFAULT) {
    const message = `through a server you see what the tenant of your token has, whatever --tenant says: leave it out, and give a token of tenant ${JSON.stringify(tenant)}`
    throw new AnnalsError('INVALID_ARGUMENT', message, { tenant })
  }
  return createClient({ url, retry: { retries: RETRIES }, ...(token === undefined ? {} : { token }) })
}

function checkOne({ postgres, server, schema }: StoreOptions): void {
  if (schema !== undefined && postgres === undefined) {
    throw new AnnalsError('INVALID_ARGUMENT', '--schema needs --postgres')
  }
  if (postgres === undefined || server === undefined) return
  throw new AnnalsError('INVALID_ARGUMENT', '--postgres and --server name two stores: give one of them')
}
