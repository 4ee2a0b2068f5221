import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { isUuidV4 } from '../core/id.ts'
import { parseRfc3339 } from '../core/time.ts'
import { TELEMETRY_STATUSES } from './model.ts'

/** A telemetry service in memory, for tests: keeps the rules that a client meets, and fails when it is told to. */

export type ServiceFault =
  | { readonly status: number; readonly retryAfter?: string }
  /** Hangs up. */
  | 'down'
  /** Takes the record, and hangs up before it says so. */
  | 'accepts-silently'
  /** Never answers. */
  | 'timeout'

export interface ServiceRequest {
  readonly method: string
  readonly path: string
  readonly payload: Readonly<Record<string, unknown>>
}

/** What happens to a request; undefined for what should. */
export type ServiceScript = (request: ServiceRequest, n: number) => ServiceFault | undefined

type Stored = Record<string, unknown>

const REQUIRED = ['event_id', 'run_id', 'agent_name', 'job_type', 'start_time']
const PATCHED = [
  'status',
  'end_time',
  'duration_ms',
  'items_succeeded',
  'items_failed',
  'items_skipped',
  'output_summary',
  'error_summary',
  'error_details',
  'metrics_json',
  'context_json',
]

export async function openFakeTelemetry(token?: string): Promise<FakeTelemetry> {
  const fake = new FakeTelemetry(token)
  await fake.listen()
  return fake
}

export class FakeTelemetry implements AsyncDisposable {
  script: ServiceScript = () => undefined
  /** What was taken, in order; a duplicate is not. */
  readonly accepted: ServiceRequest[] = []
  /** All that arrived. */
  readonly arrived: ServiceRequest[] = []
  duplicates = 0
  readonly runs: Map<string, Record<string, unknown>> = new Map()
  readonly #token: string | undefined
  readonly #server: Server

  /** @internal Use `openFakeTelemetry`. */
  constructor(token?: string) {
    this.#token = token
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => response.destroy(error as Error))
    })
  }

  get baseUrl(): string {
    const { port } = this.#server.address() as AddressInfo
    return `http://127.0.0.1:${port}`
  }

  /** @internal */
  async listen(): Promise<void> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, 'close')
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece as Buffer)
    const text = Buffer.concat(pieces).toString('utf8')
    const payload = (text === '' ? {} : JSON.parse(text)) as Stored
    const asked = { method: request.method ?? '', path: request.url ?? '', payload }
    if (asked.method === 'GET') return this.#trail(asked.path, response)
    this.arrived.push(asked)
    const fault = this.script(asked, this.arrived.length)
    if (fault === 'timeout') return
    if (fault === 'down') {
      response.destroy()
      return
    }
    if (typeof fault === 'object') {
      if (fault.retryAfter !== undefined) response.setHeader('retry-after', fault.retryAfter)
      return send(response, fault.status, { detail: `told to answer ${fault.status}` })
    }
    if (this.#token !== undefined && request.headers.authorization !== `Bearer ${this.#token}`) {
      response.setHeader('www-authenticate', 'Bearer')
      return send(response, 401, { detail: 'not authenticated' })
    }
    const [status, body] = this.#take(asked)
    if (fault === 'accepts-silently') response.destroy()
    else send(response, status, body)
  }

  #take(asked: ServiceRequest): [number, unknown] {
    const [, eventId, action] = /^\/api\/v1\/runs(?:\/([^/]+))?(?:\/([^/]+))?$/.exec(asked.path) ?? []
    if (asked.method === 'POST' && eventId === undefined) return this.#post(asked)
    const run = this.runs.get(eventId)
    if (run === undefined) return [404, { detail: `no run ${eventId}` }]
    if (asked.method === 'POST' && action === 'associate-commit') {
      run['git_commit_hash'] = asked.payload['commit_hash']
      this.accepted.push(asked)
      return [200, { status: 'success', event_id: eventId, run_id: run['run_id'] }]
    }
    if (asked.method !== 'PATCH') return [405, { detail: 'wrong method' }]
    const problems = problemsOf(asked.payload, [])
    if (problems.length > 0) return [422, { detail: problems }]
    const fields = PATCHED.filter(
      field => asked.payload[field] !== undefined && asked.payload[field] !== null,
    )
    if (fields.length === 0) return [400, { detail: 'nothing to update' }]
    for (const field of fields) run[field] = asked.payload[field]
    this.accepted.push(asked)
    return [200, { event_id: eventId, updated: true, fields_updated: fields }]
  }

  #post(asked: ServiceRequest): [number, unknown] {
    const { payload } = asked
    const problems = problemsOf(payload, REQUIRED)
    if (problems.length > 0) return [422, { detail: problems }]
    const eventId = String(payload['event_id'])
    if (this.runs.has(eventId)) {
      this.duplicates++
      return [200, { status: 'duplicate', event_id: eventId, message: 'known' }]
    }
    this.runs.set(eventId, { status: 'running', ...payload })
    this.accepted.push(asked)
    return [201, { status: 'created', event_id: eventId, run_id: payload['run_id'] }]
  }

  /** `GET /telemetry/{run_id}`: the run, and all below it by start time. */
  #trail(path: string, response: ServerResponse): void {
    const runId = decodeURIComponent(/^\/telemetry\/([^/]+)$/.exec(path)?.[1] ?? '')
    const all = [...this.runs.values()]
    const run = all.findLast(stored => stored['run_id'] === runId)
    if (run === undefined) {
      send(response, 404, { error: 'not found', run_id: runId })
      return
    }
    const below = new Set<unknown>([runId])
    const children: Stored[] = []
    // Parents come before their children, as the trail is posted in order.
    for (const stored of all) {
      if (!below.has(stored['parent_run_id'])) continue
      below.add(stored['run_id'])
      children.push(stored)
    }
    children.sort((a, b) => (String(a['start_time']) < String(b['start_time']) ? -1 : 1))
    send(response, 200, { run, children })
  }
}

function problemsOf(payload: Stored, required: readonly string[]): unknown[] {
  const problems: unknown[] = []
  const add = (field: string, msg: string): void => {
    problems.push({ loc: ['body', field], msg, type: 'value_error' })
  }
  for (const field of required) {
    if (typeof payload[field] !== 'string' || payload[field] === '') add(field, 'required')
  }
  const { event_id: eventId, status } = payload
  if (eventId !== undefined && !isUuidV4(eventId)) add('event_id', 'not a UUID v4')
  if (status !== undefined && !(TELEMETRY_STATUSES as readonly unknown[]).includes(status))
    add('status', 'unknown')
  for (const field of ['start_time', 'end_time']) {
    const time = payload[field]
    if (typeof time === 'string' && parseRfc3339(time, { offset: 'any' }) === undefined) add(field, 'no time')
  }
  for (const field of ['metrics_json', 'context_json']) {
    const json = payload[field]
    if (json !== undefined && (typeof json !== 'object' || json === null)) add(field, 'not an object')
  }
  return problems
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}
