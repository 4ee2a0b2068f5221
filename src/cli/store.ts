import { statSync } from 'node:fs'
import {
  type Annals,
  AnnalsError,
  type Events,
  type Ledger,
  type OpenOptions,
  open,
  type Runs,
  type Traces,
} from '../index.ts'
import type { Terminal } from './terminal.ts'

/** How a command line names its store. */
export interface StoreOptions {
  readonly data: string
  readonly postgres?: string
  readonly schema?: string
  readonly tenant: string
}

/** What commands read from: a store that they open themselves, or that of a server, whose client has the same methods. */
export interface Source {
  readonly runs: Pick<Runs, 'get' | 'query'>
  readonly ledger: Pick<
    Ledger,
    'fetchEvents' | 'getSnapshot' | 'replaySnapshot' | 'verifyRun' | 'alerts' | 'subscribe'
  >
  readonly events: Pick<Events, 'length' | 'readRange' | 'verifyChain' | 'tail'>
  readonly traces: Pick<Traces, 'queryByTime'>
  exportRun(runId: string): AsyncIterable<Uint8Array>
  close(): Promise<void>
}

/** Opens what the options name, works with it, and closes it. */
export async function reading<T>(
  options: StoreOptions,
  _terminal: Terminal,
  work: (source: Source) => Promise<T>,
): Promise<T> {
  const source = await openSource(options)
  try {
    return await work(source)
  } finally {
    await source.close()
  }
}

async function openSource(options: StoreOptions): Promise<Source> {
  if (options.postgres !== undefined) return openOnPostgres(options)
  return openFolder(options, { readOnly: true })
}

/** The store itself, for who writes; a folder is made if it is missing. */
export async function openStore(options: StoreOptions): Promise<Annals> {
  const { data, postgres, tenant } = options
  if (postgres !== undefined) return openOnPostgres(options)
  return open({ path: data, tenant }).catch(error => sayWhoHolds(error, data))
}

function openFolder(
  options: StoreOptions,
  more: Pick<OpenOptions, 'readOnly' | 'verifyOnOpen'>,
): Promise<Annals> {
  const { data, tenant } = options
  if (statSync(data, { throwIfNoEntry: false })?.isDirectory() !== true) {
    const message = `there is no store in ${data}: --data names another folder, and \`annals demo\` makes a store to look at`
    throw new AnnalsError('IO_ERROR', message, { path: data })
  }
  return open({ path: data, tenant, ...more }).catch(error => sayWhoHolds(error, data))
}

/** Brings its schema up to date, as every program that opens it does. */
export async function openOnPostgres({ postgres, schema, tenant }: StoreOptions): Promise<Annals> {
  const { openPostgres } = await import('../postgres.ts').catch(missingPg)
  const connectionString = postgres as string
  return openPostgres({ connectionString, tenant, ...(schema === undefined ? {} : { schema }) })
}

function missingPg(error: unknown): never {
  if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
  const message = 'a store on PostgreSQL takes the package pg: npm install pg'
  throw new AnnalsError('INVALID_OPERATION', message, {}, error)
}

function sayWhoHolds(error: unknown, data: string): never {
  if (!(error instanceof AnnalsError) || error.code !== 'LOCKED') throw error
  const message = `${data} is open in another process, such as a server or a program of yours: only one at a time may have it`
  throw new AnnalsError('LOCKED', message, error.details, error)
}
