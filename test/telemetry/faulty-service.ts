import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Annals, open } from '../../src/annals.ts'
import { createApp } from '../../src/server/app.ts'

/** The real telemetry service over a database in memory, with failures that a script chooses. */

export type ServiceFault =
  | { readonly status: number; readonly retryAfter?: string }
  /** Closes the connection. */
  | 'down'
  /** Stores the record, and closes the connection before it answers. */
  | 'accepts-silently'
  /** Never answers. */
  | 'timeout'

interface ServiceRequest {
  readonly method: string
  readonly path: string
  readonly payload: Readonly<Record<string, unknown>>
}

/** Chooses the failure for a request; undefined for none. */
export type ServiceScript = (request: ServiceRequest, n: number) => ServiceFault | undefined

export async function openFaultyTelemetry(token?: string): Promise<FaultyTelemetry> {
  const db = await open({ memory: true })
  const faulty = new FaultyTelemetry(db, createApp(db, token === undefined ? {} : { staticToken: token }))
  await faulty.listen()
  return faulty
}

export class FaultyTelemetry implements AsyncDisposable {
  script: ServiceScript = () => undefined
  /** The accepted requests, in order, without duplicates. */
  readonly accepted: ServiceRequest[] = []
  /** All requests except reads. */
  readonly arrived: ServiceRequest[] = []
  duplicates = 0
  /** The records by event id, in the order in which they were posted. */
  readonly runs: Map<string, Record<string, unknown>> = new Map()
  readonly #db: Annals
  readonly #app: ReturnType<typeof createApp>
  readonly #server: Server

  constructor(db: Annals, app: ReturnType<typeof createApp>) {
    this.#db = db
    this.#app = app
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => response.destroy(error as Error))
    })
  }

  get baseUrl(): string {
    const { port } = this.#server.address() as AddressInfo
    return `http://127.0.0.1:${port}`
  }

  async listen(): Promise<void> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, 'close')
    await this.#db.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece as Buffer)
    const body = Buffer.concat(pieces)
    const { method = '', url: path = '' } = request
    if (method === 'GET') return hand(response, await this.#ask(request, body))
    const asked = { method, path, payload: JSON.parse(body.toString('utf8')) as ServiceRequest['payload'] }
    this.arrived.push(asked)
    const fault = this.script(asked, this.arrived.length)
    if (fault === 'timeout') return
    if (fault === 'down') {
      response.destroy()
      return
    }
    if (typeof fault === 'object') {
      const headers = fault.retryAfter === undefined ? {} : { 'retry-after': fault.retryAfter }
      const detail = JSON.stringify({ detail: `told to answer ${fault.status}` })
      return hand(response, new Response(detail, { status: fault.status, headers }))
    }
    const answer = await this.#ask(request, body)
    await this.#note(asked, answer.clone())
    if (fault === 'accepts-silently') response.destroy()
    else await hand(response, answer)
  }

  async #ask(request: IncomingMessage, body: Buffer): Promise<Response> {
    const { method = '', url: path = '', headers } = request
    const given = Object.entries(headers).filter(([name]) => ['authorization', 'content-type'].includes(name))
    return this.#app.request(`${this.baseUrl}${path}`, {
      method,
      headers: Object.fromEntries(given) as Record<string, string>,
      ...(body.length === 0 ? {} : { body: new Uint8Array(body) }),
    })
  }

  /** The answer of the service. */
  async #note(asked: ServiceRequest, answer: Response): Promise<void> {
    if (!answer.ok) return
    const { status, event_id: eventId } = (await answer.json()) as { status?: string; event_id: string }
    if (status === 'duplicate') {
      this.duplicates++
      return
    }
    this.accepted.push(asked)
    this.runs.set(eventId, { ...(await this.#db.telemetry.get(eventId)) })
  }
}

async function hand(response: ServerResponse, answer: Response): Promise<void> {
  response.writeHead(answer.status, Object.fromEntries(answer.headers))
  response.end(await answer.text())
}
