import { once } from 'node:events'
import type { Server as HttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createAdaptorServer } from '@hono/node-server'
import type { OpenAPIHono } from '@hono/zod-openapi'
import type { Annals } from 'annals'
import { AnnalsError } from '../core/errors.ts'
import { appOver } from './app.ts'
import { type ServerOptions, type ServerSettings, settingsOf } from './options.ts'
import type { ServerEnv } from './server-env.ts'
import { Services } from './services.ts'
import type { TokenStore } from './tokens.ts'

/** The address at which a server listens. */
export interface ServerAddress {
  /** For clients, such as `http://127.0.0.1:8765`. */
  readonly url: string
  /** The host from the options. */
  readonly host: string
  /** The actual port, also if the options had 0. */
  readonly port: number
}

/** Limits for clients that send the head or the body of a request slowly. */
const HEADERS_TIMEOUT_MS = 10_000
const REQUEST_TIMEOUT_MS = 60_000
const KEEP_ALIVE_TIMEOUT_MS = 5_000
const CHECKING_INTERVAL_MS = 1_000
const HEADERS_BYTES_MAX = 16 * 1024
const CONNECTIONS_BESIDE_STREAMS = 1_000

/**
 * An HTTP server for a database: idle → `listen` → listening → `close` → closed. `close` accepts no more connections, ends the
 * event streams, lets open requests finish and aborts those that take too long. The database stays open.
 */
export class Server implements AsyncDisposable {
  /** All routes; `app.fetch` answers a `Request` without a socket. */
  readonly app: OpenAPIHono<ServerEnv>
  /** The access tokens of this server. */
  readonly tokens: TokenStore
  readonly #services: Services
  #http: HttpServer | undefined
  #closed: Promise<void> | undefined

  /** @internal Use `createServer`. */
  constructor(db: Annals, settings: ServerSettings) {
    this.#services = new Services(db, settings)
    this.tokens = this.#services.tokens
    this.app = appOver(this.#services)
  }

  /** Answers a request without a socket, for tests and for other HTTP frameworks. */
  fetch(request: Request): Promise<Response> {
    return Promise.resolve(this.app.fetch(request))
  }

  /** Starts to accept connections. `INVALID_OPERATION` if tokens are required and none exists. */
  async listen(): Promise<ServerAddress> {
    if (this.#http !== undefined || this.#closed !== undefined) {
      throw new AnnalsError('INVALID_OPERATION', 'listen can be called only once; create another server')
    }
    const { host, port, auth, staticToken, streamsMax, streamStallMs, heartbeatMs } = this.#services.settings
    if (auth === 'required' && staticToken === undefined && !(await this.tokens.exist())) {
      const message = 'every request would need a token, and none exists: create one first'
      throw new AnnalsError('INVALID_OPERATION', message)
    }
    const http = createAdaptorServer({
      fetch: this.app.fetch,
      serverOptions: {
        headersTimeout: HEADERS_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        maxHeaderSize: HEADERS_BYTES_MAX,
        connectionsCheckingInterval: CHECKING_INTERVAL_MS,
      },
    }) as HttpServer
    // Closes connections without traffic, so that a client that never reads its answer cannot keep it in memory.
    http.setTimeout(Math.max(streamStallMs, 2 * heartbeatMs), socket => socket.destroy())
    http.maxConnections = streamsMax + CONNECTIONS_BESIDE_STREAMS
    this.#http = http
    http.listen(port, host)
    await once(http, 'listening')
    const { port: actual } = http.address() as AddressInfo
    return { url: `http://${host.includes(':') ? `[${host}]` : host}:${actual}`, host, port: actual }
  }

  /** The number of open connections. */
  connections(): Promise<number> {
    const http = this.#http
    if (http === undefined) return Promise.resolve(0)
    return new Promise((resolve, reject) => {
      http.getConnections((error, count) => (error === null ? resolve(count) : reject(error)))
    })
  }

  /** Closes the server. Calling it again returns the same promise. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    this.#services.close()
    const http = this.#http
    if (http === undefined) return
    const ended = new Promise<void>(resolve => http.close(() => resolve()))
    http.closeIdleConnections()
    const cut = setTimeout(() => http.closeAllConnections(), this.#services.settings.closeTimeoutMs)
    await ended
    clearTimeout(cut)
  }
}

/**
 * Creates a server for this database. `listen` accepts requests from the network; `fetch` answers a single one.
 * @example
 * const server = createServer(db)
 * const answer = await server.fetch(new Request('http://localhost/ready'))
 * answer.status // → 200
 * await server.close()
 */
export function createServer(db: Annals, options: ServerOptions = {}): Server {
  return new Server(db, settingsOf(options))
}
