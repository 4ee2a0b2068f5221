import { statSync } from 'node:fs'
import { createClient, type ProblemCause, type StoreIdentity } from '../client.ts'
import { AnnalsError } from '../index.ts'
import { announcedServer } from './announcement.ts'
import { safeText } from './safe-text.ts'
import type { Terminal } from './terminal.ts'

/** Where a server usually is. */
const DEFAULT_URL = 'http://127.0.0.1:8765'
const ANSWER_MS = 2_000

interface Folder {
  readonly data: string
  readonly token?: string
}

/**
 * The server that has a locked folder open: the one that wrote its address there, or the one at the usual address. It is
 * asked which store it has first, as another store's runs would look like an answer. `LOCKED` if it is not this one.
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
    const message = `${data} is in use: the server at ${url} has it open and wants a token: set ANNALS_TOKEN${token === undefined ? '' : ', as the one that was given is refused'}`
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
      return `the server at ${url} wants a token before it says which store it has`
    default:
      return `what answers at ${url} does not say which store it has`
  }
}

/** Whether the server that wrote its address into a folder still has that folder open. */
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

/** Whether a server is there, whatever it thinks of our token. */
export async function answers(url: string): Promise<boolean> {
  try {
    return await createClient({ url, timeoutMs: ANSWER_MS, retry: { retries: 0 } }).ready()
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    return error.code === 'UNAUTHENTICATED' || error.code === 'FORBIDDEN'
  }
}

/** What a server says of its store, or why it says nothing. */
interface Answer {
  readonly identity?: StoreIdentity
  readonly refusal?: 'none' | 'token' | 'other'
}

/** Without the token first: it is for the server of this store, and that is what is asked. */
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

/** A copy of a store has its id, and two machines may have folders with the same numbers: so both must fit. */
function isOf({ storeId, folder }: StoreIdentity, data: string, locked?: AnnalsError): boolean {
  const { dev, ino } = statSync(data, { bigint: true })
  const known = locked?.details['storeId']
  return (
    folder?.device === String(dev) &&
    folder.inode === String(ino) &&
    (known === undefined || storeId === undefined || known === storeId)
  )
}
