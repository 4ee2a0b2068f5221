import { statSync } from 'node:fs'
import { type AnnalsClient, createClient } from '../client.ts'
import { type Annals, AnnalsError, open } from '../index.ts'
import { usageError } from './command.ts'
import { serverHolding } from './holding-server.ts'
import { safeText } from './safe-text.ts'
import { localSource, remoteSource, type Source } from './source.ts'
import type { Terminal } from './terminal.ts'

/** The options that name a store. */
export interface StoreOptions {
  readonly data: string
  readonly postgres?: string
  readonly schema?: string
  readonly server?: string
  readonly token?: string
  readonly tenant: string
}

const TENANT_DEFAULT = 'default'

/** Opens the store that the options name, runs `work` and closes the store. */
export async function reading<T>(
  options: StoreOptions,
  terminal: Terminal,
  work: (source: Source) => Promise<T>,
): Promise<T> {
  return withSource(await openSource(options, terminal, false), work)
}

/** The same, with an up-to-date run index: the process that appended the last events may have died before it updated the index. */
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

/** Opens the folder, or asks the server that has it open: only one process at a time can open a folder. */
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

/** Opens a store for writing, and creates its folder if that is missing. */
export async function openStore(options: StoreOptions): Promise<Annals> {
  checkOne(options)
  const { data, postgres, server, tenant } = options
  if (server !== undefined) {
    throw usageError('this command needs the store itself: give --data or --postgres, not --server')
  }
  if (postgres !== undefined) return openOnPostgres(options)
  checkFolder(data)
  return open({ path: data, tenant }).catch((error: unknown) => {
    if (!(error instanceof AnnalsError) || error.code !== 'LOCKED') throw error
    const message = `${data} is open in another process, such as a server; stop that process first, because only one process at a time can open a folder`
    throw new AnnalsError('LOCKED', message, error.details, error)
  })
}

/** For commands that write little: opens the store, or asks the server that has it open. `make` creates a missing store. */
export async function openStoreOrServer(
  options: StoreOptions,
  terminal: Terminal,
  { make }: { readonly make: boolean },
): Promise<{ readonly db: Annals } | { readonly client: AnnalsClient }> {
  checkOne(options)
  if (options.server !== undefined) return { client: clientOf(options, options.server) }
  try {
    // Opening for writing creates a store, so a misspelt folder would look like an empty store.
    if (!make && options.postgres === undefined) await (await openFolder(options)).close()
    return { db: await openStore(options) }
  } catch (error) {
    if (!(error instanceof AnnalsError) || error.code !== 'LOCKED') throw error
    return { client: clientOf(options, await serverHolding(options, terminal, error)) }
  }
}

/** A command reads most data once, so a large cache would only cost memory. */
const CACHE_BYTES = 8 * 1024 * 1024

async function openFolder({ data, tenant }: StoreOptions): Promise<Annals> {
  if (!checkFolder(data)) throw noStore(data)
  const db = await open({ path: data, tenant, readOnly: true, cacheBytes: CACHE_BYTES })
  if (db.stats().storeId !== undefined) return db
  await db.close()
  throw noStore(data)
}

function noStore(data: string): AnnalsError {
  const message = `there is no store in ${data}. Name its folder with --data, or try \`annals demo\`, which makes a store with one run`
  return new AnnalsError('IO_ERROR', message, { path: data })
}

/** Opens the store read-only, unless the run index has to be updated first. */
async function openSettled(options: StoreOptions, terminal: Terminal): Promise<Annals> {
  const { data, tenant } = options
  const db = await openFolder(options)
  if (await db.ledger.isSettled()) return db
  await db.close()
  const writing = await open({ path: data, tenant, cacheBytes: CACHE_BYTES }).catch(undefinedIfUnwritable)
  if (writing !== undefined && (await writing.ledger.settle())) return writing
  await writing?.close()
  terminal.note(`${safeText(data)} cannot be written to, so this list may miss the latest status changes`)
  return openFolder(options)
}

function undefinedIfUnwritable(error: unknown): undefined {
  const { code } = error instanceof AnnalsError ? error : { code: undefined }
  if (code !== 'IO_ERROR' && code !== 'READ_ONLY' && code !== 'DISK_FULL') throw error
}

/** Whether the folder exists. Throws if it is a file. */
function checkFolder(data: string): boolean {
  const found = statSync(data, { throwIfNoEntry: false })
  if (found === undefined || found.isDirectory()) return found !== undefined
  throw usageError(`${data} is a file; --data takes the folder of a store`, { path: data })
}

/** Opens a store on PostgreSQL. Unless it is read-only, this migrates the schema. */
export async function openOnPostgres(
  { postgres, schema, tenant }: StoreOptions,
  { readOnly = false }: { readonly readOnly?: boolean } = {},
): Promise<Annals> {
  const { openPostgres } = await import('../postgres.ts').catch(missingPg)
  const connectionString = postgres as string
  const options = { connectionString, tenant, readOnly, ...(schema === undefined ? {} : { schema }) }
  return openPostgres(options).catch((error: unknown) => {
    const isMissing = error instanceof AnnalsError && error.details['schema'] !== undefined
    if (!isMissing || error.code !== 'INVALID_ARGUMENT') throw error
    const message = `there is no store in schema ${error.details['schema']} of this database; --schema names another schema, and \`annals serve\` creates a store`
    throw new AnnalsError('IO_ERROR', message, error.details, error)
  })
}

function missingPg(error: unknown): never {
  if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
  const message = 'a store on PostgreSQL needs the package pg: npm install pg'
  throw new AnnalsError('INVALID_OPERATION', message, {}, error)
}

/** Few, because a person waits for the answer. */
const RETRIES = 2

function clientOf({ token, tenant }: StoreOptions, url: string): AnnalsClient {
  if (tenant !== TENANT_DEFAULT) {
    const message = `--tenant has no effect with a server, which shows the data of the token's tenant: leave it out and use a token of tenant ${JSON.stringify(tenant)}`
    throw usageError(message, { tenant })
  }
  return createClient({ url, retry: { retries: RETRIES }, ...(token === undefined ? {} : { token }) })
}

function checkOne({ postgres, server, schema }: StoreOptions): void {
  if (schema !== undefined && postgres === undefined) {
    throw usageError('--schema needs --postgres')
  }
  if (postgres === undefined || server === undefined) return
  throw usageError('--postgres and --server name two stores; give one of them')
}
