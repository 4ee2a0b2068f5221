import { statSync } from 'node:fs'
import { createClient, type ProblemCause, type StoreIdentity } from '../client.ts'
import { AnnalsError } from '../index.ts'
import { announcedServer } from './announcement.ts'
import { safeText } from './safe-text.ts'
import type { Terminal } from './terminal.ts'

/** The address at which `annals serve` listens by default. */
const DEFAULT_URL = 'http://127.0.0.1:8765'
const ANSWER_MS = 2_000

interface Folder {
  readonly data: string
  readonly token?: string
}

/**
 * Finds the server that has a locked folder open: the server that wrote its address into the folder, or the one at the
 * default address. It must confirm which store it has, because the runs of another store would look like an answer. Throws
 * `LOCKED` if no server confirms.
 */
export async function serverHolding(
  { data, token }: Folder,
  terminal: Terminal,
  locked: AnnalsError,
): Promise<string> {
  const announced = announcedServer(data, message => terminal.note(message))
  const url = announced ?? DEFAULT_URL
  const answer = await askedFor(url, announced === undefined ? undefined : token)
  if (answer.identity !== undefined && isOf(answer.identity, data, locked)) {
    terminal.note(`${safeText(data)} is open in another process: asking the server at ${safeText(url)}`)
    return url
  }
  if (answer.refusal === 'token' && announced !== undefined) {
    const message = `${data} is in use: the server at ${url} has it open and needs a token${token === undefined ? '. Set ANNALS_TOKEN' : ', and it refuses the one in ANNALS_TOKEN'}`
    throw new AnnalsError('UNAUTHENTICATED', message, { url })
  }
  const message = `${data} is open in another process, and ${reasonOf(answer, url)}. ${ADVICE}`
  throw new AnnalsError('LOCKED', message, locked.details, locked)
}

const ADVICE =
  'If a server has the folder open, add --server with its address; otherwise wait until the other process ends, because only one process at a time can have a folder open'

function reasonOf({ identity, refusal }: Answer, url: string): string {
  if (identity !== undefined) return `the server at ${url} has another store`
  switch (refusal) {
    case 'none':
      return `no server answers at ${url}`
    case 'token':
      return `the server at ${url} needs a token before it tells which store it has`
    default:
      return `the server at ${url} does not tell which store it has`
  }
}

/** The server that wrote its address into the folder, if it still has that folder open. */
export async function runningServer(
  { data, token }: Folder,
  terminal: Terminal,
): Promise<string | undefined> {
  const url = announcedServer(data, message => terminal.note(message))
  if (url === undefined) return undefined
  const { identity, refusal } = await askedFor(url, token)
  if (identity === undefined) return refusal === 'token' ? url : undefined
  return isOf(identity, data) ? url : undefined
}

/** Whether a server answers, even if it refuses the request for lack of a token. */
export async function answers(url: string): Promise<boolean> {
  try {
    return await createClient({ url, timeoutMs: ANSWER_MS, retry: { retries: 0 } }).ready()
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    return error.code === 'UNAUTHENTICATED' || error.code === 'FORBIDDEN'
  }
}

/** The identity that a server reports of its store, or why it reports none. */
interface Answer {
  readonly identity?: StoreIdentity
  readonly refusal?: 'none' | 'token' | 'other'
}

/** Asks without the token first: only the server of this store may see it. */
async function askedFor(url: string, token: string | undefined): Promise<Answer> {
  const answer = await ask(url, undefined)
  return answer.refusal === 'token' && token !== undefined ? ask(url, token) : answer
}

async function ask(url: string, token: string | undefined): Promise<Answer> {
  const credentials = token === undefined ? {} : { token }
  try {
    const client = createClient({ url, timeoutMs: ANSWER_MS, retry: { retries: 0 }, ...credentials })
    const identity: unknown = await client.store()
    return { identity: typeof identity === 'object' && identity !== null ? identity : {} }
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    if (error.code === 'UNAUTHENTICATED') return { refusal: 'token' }
    const { status } = (error.cause ?? {}) as Partial<ProblemCause>
    return { refusal: status === undefined ? 'none' : 'other' }
  }
}

/** Compares both, because a copy of a store has its id, and folders on two machines may have the same inode. */
function isOf({ storeId, folder }: StoreIdentity, data: string, locked?: AnnalsError): boolean {
  const { dev, ino } = statSync(data, { bigint: true })
  const known = locked?.details['storeId']
  return (
    folder?.device === String(dev) &&
    folder.inode === String(ino) &&
    (known === undefined || storeId === undefined || known === storeId)
  )
}
