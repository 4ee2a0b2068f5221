import { AnnalsError, type ErrorCode, type ErrorDetails, invalidArgument } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import { pause } from '../core/pause.ts'
import { type RetryOptions, retried } from '../core/retry.ts'

/** Options of `createClient`. */
export interface ClientOptions {
  /** The address of the server, such as `http://127.0.0.1:8765`. */
  readonly url: string
  /** An access token; not needed if the server accepts requests without one. */
  readonly token?: string
  /** Sends requests; default: the platform's `fetch`. */
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>
  /** The time limit of one attempt; default 30 s. */
  readonly timeoutMs?: number
  /** How requests are retried after transient failures. Writes are idempotent, so a retry does not repeat them. */
  readonly retry?: RetryOptions
  /** A stream without data for this time is opened again; default 45 s. */
  readonly idleMs?: number
}

export interface Ask {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly query?: Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>
  /** The body, sent as JSON. */
  readonly json?: unknown
  /** The body, sent as it is. */
  readonly body?: { readonly content: string | Uint8Array; readonly type: string }
  readonly headers?: Readonly<Record<string, string>>
  /** Sends an `Idempotency-Key`, so that the server does the write once even if it is retried. */
  readonly once?: boolean
  /** Whether the request may be retried if its outcome is unknown; default true. */
  readonly isRepeatable?: boolean
}

const TIMEOUT_MS = 30_000
const IDLE_MS = 45_000
const RETRY_AFTER_MAX_MS = 10_000
const TOKEN = /^[\x21-\x7e]+$/
const NAMES = ['url', 'token', 'fetch', 'timeoutMs', 'retry', 'idleMs']
/** Statuses of proxies, and of servers that start or close. */
const TRANSIENT_STATUS: readonly number[] = [408, 425, 429, 502, 503, 504]

/** Sends requests, retries them, and turns problem documents into errors. */
export class Transport {
  readonly idleMs: number
  readonly retry: RetryOptions
  readonly #url: string
  readonly #token: string | undefined
  readonly #fetch: (url: string, init: RequestInit) => Promise<Response>
  readonly #timeoutMs: number

  constructor(options: ClientOptions) {
    checkOptions('a client', options, NAMES)
    const { url, token, timeoutMs = TIMEOUT_MS, retry = {}, idleMs = IDLE_MS } = options
    // Looked up at each call, because a program may replace it.
    const { fetch: ask = (at: string, init: RequestInit) => globalThis.fetch(at, init) } = options
    checkFunction('fetch', ask)
    for (const [name, value] of Object.entries({ timeoutMs, idleMs })) {
      if (!(Number.isSafeInteger(value) && value > 0))
        throw invalidArgument(name, 'must be a positive integer', value)
    }
    if (token !== undefined && !TOKEN.test(token))
      throw invalidArgument('token', 'must be visible ASCII characters', '…')
    this.#url = checkUrl(url)
    this.#token = token
    this.#fetch = ask
    this.#timeoutMs = timeoutMs
    this.idleMs = idleMs
    this.retry = { ...retry, isTransient: retry.isTransient ?? isTransient }
  }

  /** Sends a request with retries. Throws unless the answer is successful. */
  async ask(path: string, ask: Ask = {}): Promise<Response> {
    const { method = 'GET', json, body, once = false, isRepeatable = true } = ask
    const content = json === undefined ? body?.content : JSON.stringify(json)
    const type = json === undefined ? body?.type : 'application/json'
    const headers: Record<string, string> = {
      ...(type === undefined ? {} : { 'Content-Type': type }),
      ...(once ? { 'Idempotency-Key': newKey() } : {}),
      ...ask.headers,
    }
    return retried(
      async () => {
        const response = await this.send(path, {
          method,
          headers,
          query: ask.query,
          signal: AbortSignal.timeout(this.#timeoutMs),
          ...(content === undefined ? {} : { body: content }),
        })
        if (!response.ok) {
          await this.#waitAsTold(response)
          throw await problemIn(response)
        }
        // Read here, so that a connection that breaks within the answer is retried.
        return await whole(response, method)
      },
      isRepeatable ? this.retry : { ...this.retry, retries: 0 },
    )
  }

  /** Waits for the time in `Retry-After`, which a busy or closing server sends, up to a maximum. */
  async #waitAsTold(response: Response): Promise<void> {
    const seconds = Number(response.headers.get('Retry-After') ?? Number.NaN)
    if (!TRANSIENT_STATUS.includes(response.status) || !(seconds > 1)) return
    const { sleep = pause } = this.retry
    await sleep(Math.min(seconds * 1_000, RETRY_AFTER_MAX_MS))
  }

  /** The same, with the answer parsed as JSON and frozen. */
  async json<T>(path: string, ask?: Ask): Promise<T> {
    return frozen(await this.read(await this.ask(path, ask))) as T
  }

  /** Parses the JSON of an answer. */
  async read(response: Response): Promise<unknown> {
    const value = parsed(await response.text())
    if (value === undefined) throw this.foreign(response.status)
    return value
  }

  /** The error if another program answers at this address. */
  foreign(status: number): AnnalsError {
    const cause: ProblemCause = { status, requestId: undefined }
    return new AnnalsError(
      'UNAVAILABLE',
      `the program that answers at ${this.#url} is not an annals server`,
      {},
      cause,
    )
  }

  /** Sends a request once. */
  async send(
    path: string,
    init: {
      readonly method?: string
      readonly headers?: Readonly<Record<string, string>>
      readonly query?: Ask['query']
      readonly body?: string | Uint8Array
      readonly signal: AbortSignal
    },
  ): Promise<Response> {
    const { query, headers, ...rest } = init
    const authorization: Record<string, string> =
      this.#token === undefined ? {} : { Authorization: `Bearer ${this.#token}` }
    try {
      return await this.#fetch(`${this.#url}${path}${searchOf(query)}`, {
        ...rest,
        headers: { ...authorization, ...headers },
      } as RequestInit)
    } catch (error) {
      throw unreachable(init.method ?? 'GET', this.#url, error)
    }
  }
}

/** The error in an unsuccessful answer. */
export async function problemIn(response: Response): Promise<AnnalsError> {
  const text = await response.text().catch(() => '')
  return problemOf(parsed(text), response)
}

/** The HTTP data of an error; the `cause` of its `AnnalsError`. */
export interface ProblemCause {
  /** The HTTP status. */
  readonly status: number
  /** Under which the server's log has more; undefined if another program answered. */
  readonly requestId: string | undefined
}

/** The error in a problem document. */
export function problemOf(problem: unknown, response?: Response): AnnalsError {
  const { code, detail, details = {}, requestId, status } = (problem ?? {}) as Record<string, unknown>
  const cause: ProblemCause = {
    status: response?.status ?? (typeof status === 'number' ? status : 0),
    requestId: typeof requestId === 'string' ? requestId : undefined,
  }
  if (typeof code === 'string' && typeof detail === 'string') {
    return new AnnalsError(code as ErrorCode, detail, details as ErrorDetails, cause)
  }
  // Another program, or a proxy in front of the server.
  return new AnnalsError('UNAVAILABLE', `the server answered with status ${cause.status}`, {}, cause)
}

/** For `catch`: turns an error with this code into undefined. */
export function undefinedIf(code: ErrorCode): (error: unknown) => undefined {
  return error => {
    if (!(error instanceof AnnalsError && error.code === code)) throw error
  }
}

/** Whether a retry may succeed. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof AnnalsError)) return false
  const { status } = (error.cause ?? {}) as Partial<ProblemCause>
  return typeof status === 'number' ? TRANSIENT_STATUS.includes(status) : error.code === 'UNAVAILABLE'
}

/** Error codes of connections that were never made. */
const NOT_CONNECTED: readonly string[] = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH']

function unreachable(method: string, url: string, cause: unknown): AnnalsError {
  const outcome = method === 'GET' ? {} : { outcome: 'unknown' }
  const { code } = ((cause as Error | undefined)?.cause ?? {}) as { readonly code?: unknown }
  const message =
    typeof code === 'string' && NOT_CONNECTED.includes(code)
      ? `no server answers at ${url} (${code})`
      : `the connection to ${url} ended before a complete answer`
  return new AnnalsError('UNAVAILABLE', message, outcome, cause)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

/** Not `randomUUID`, which browsers have only in secure contexts. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), byte =>
    byte.toString(16).padStart(2, '0'),
  ).join('')
}

async function whole(response: Response, method: string): Promise<Response> {
  try {
    const bytes = await response.arrayBuffer()
    return new Response(bytes, { status: response.status, headers: response.headers })
  } catch (error) {
    throw unreachable(method, response.url, error)
  }
}

function searchOf(query: Ask['query'] = {}): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue
    for (const one of Array.isArray(value) ? value : [value]) search.append(name, `${one}`)
  }
  const text = search.toString()
  return text === '' ? '' : `?${text}`
}

function checkUrl(url: unknown): string {
  try {
    const { protocol, href, search, hash } = new URL(url as string)
    const isWhole = search === '' && hash === ''
    if (isWhole && (protocol === 'http:' || protocol === 'https:')) return href.replace(/\/$/, '')
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
  }
  throw new AnnalsError('INVALID_ARGUMENT', 'url must begin with http: or https: and have no ? and #', {
    name: 'url',
    value: url,
  })
}

/** Freezes the value and everything in it, because a local database returns frozen values too. */
export function frozen(json: unknown): unknown {
  if (typeof json !== 'object' || json === null) return json
  for (const value of Object.values(json)) frozen(value)
  return Object.freeze(json)
}
