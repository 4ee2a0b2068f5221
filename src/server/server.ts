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

/** Where a server listens. */
export interface ServerAddress {
  readonly url: string
  readonly host: string
  readonly port: number
}

/** Who sends its head or its body drop by drop is not waited for. */
const HEADERS_TIMEOUT_MS = 10_000
const REQUEST_TIMEOUT_MS = 60_000
const KEEP_ALIVE_TIMEOUT_MS = 5_000
const CHECKING_INTERVAL_MS = 1_000
const HEADERS_BYTES_MAX = 16 * 1024
const CONNECTIONS_BESIDE_STREAMS = 1_000

/**
 * A server over a database. Idle → `listen` → listening → `close` → closed: it takes no more connections, ends its event
 * streams, lets requests under way finish, and cuts off those that take too long. The database stays open.
 */
export class Server implements AsyncDisposable {
  /** The routes: `app.fetch` answers a `Request` without any socket. */
  readonly app: OpenAPIHono<ServerEnv>
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

  fetch(request: Request): Promise<Response> {
    return Promise.resolve(this.app.fetch(request))
  }

  /** Takes requests from now on. */
  async listen(): Promise<ServerAddress> {
    if (this.#http !== undefined || this.#closed !== undefined) {
      throw new AnnalsError('INVALID_OPERATION', 'a server listens once: make another one')
    }
    const { host, port, auth, staticToken, streamsMax, streamStallMs, heartbeatMs } = this.#services.settings
    if (auth === 'required' && staticToken === undefined && !(await this.tokens.exist())) {
      const message = 'every request would need a token, and there is none: make one first'
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
    // Nothing read and nothing written: who asks for something and never takes it does not keep it in memory for ever.
    http.setTimeout(Math.max(streamStallMs, 2 * heartbeatMs), socket => socket.destroy())
    http.maxConnections = streamsMax + CONNECTIONS_BESIDE_STREAMS
    this.#http = http
    http.listen(port, host)
    await once(http, 'listening')
    const { port: actual } = http.address() as AddressInfo
    return { url: `http://${host.includes(':') ? `[${host}]` : host}:${actual}`, host, port: actual }
  }

  /** How many connections are open now. */
  connections(): Promise<number> {
    const http = this.#http
    if (http === undefined) return Promise.resolve(0)
    return new Promise((resolve, reject) => {
      http.getConnections((error, count) => (error === null ? resolve(count) : reject(error)))
    })
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

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
 * A server for this database: `listen` to take requests from the network, or hand them to `fetch`.
 * @example
 * const server = createServer(db)
 * const answer = await server.fetch(new Request('http://localhost/ready'))
 * answer.status // → 200
 * await server.close()
 */
export function createServer(db: Annals, options: ServerOptions = {}): Server {
  return new Server(db, settingsOf(options))
}
