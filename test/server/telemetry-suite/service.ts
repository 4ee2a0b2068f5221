import { expect } from 'vitest'
import { newId } from '../../../src/core/id.ts'
import type { createApp } from '../../../src/server/app.ts'

/** A telemetry service that is called without a socket. */

export type Json = Record<string, unknown>
type App = ReturnType<typeof createApp>

export const RUNS = '/api/v1/runs'

export function newRun(fields: Json = {}): Json & { readonly event_id: string } {
  return {
    event_id: newId(),
    run_id: 'r',
    agent_name: 'agent',
    job_type: 'job',
    start_time: '2026-11-15T03:30:00Z',
    ...fields,
  }
}

interface Asked {
  readonly method?: string
  readonly body?: unknown
  /** A raw body instead of one in JSON. */
  readonly text?: string
  readonly bytes?: Uint8Array
  readonly headers?: Record<string, string>
}

interface Answer {
  readonly status: number
  readonly body: Json
  readonly headers: Headers
}

export interface Service {
  ask(path: string, asked?: Asked): Promise<Answer>
  get(path: string): Promise<Answer>
  post(path: string, body: unknown): Promise<Answer>
  patch(path: string, body: unknown): Promise<Answer>
  /** Stores a run and returns its id. */
  posted(fields?: Json): Promise<string>
  list(query: string): Promise<Json[]>
}

/** Takes a function, because the app exists only once the tests run. */
export function serviceOf(app: () => App): Service {
  const ask: Service['ask'] = async (path, asked = {}) => {
    const { body, bytes, text, headers = {} } = asked
    const hasBody = body !== undefined || text !== undefined || bytes !== undefined
    const response = await app().request(`http://localhost${path}`, {
      method: asked.method ?? (hasBody ? 'POST' : 'GET'),
      headers: { ...(hasBody ? { 'content-type': 'application/json' } : {}), ...headers },
      ...(hasBody ? { body: bytes ?? text ?? JSON.stringify(body) } : {}),
    })
    const answer = await response.text()
    return {
      status: response.status,
      body: answer === '' ? {} : (JSON.parse(answer) as Json),
      headers: response.headers,
    }
  }
  return {
    ask,
    get: path => ask(path),
    post: (path, body) => ask(path, { body }),
    patch: (path, body) => ask(path, { method: 'PATCH', body }),
    async posted(fields = {}) {
      const run = newRun(fields)
      expect((await ask(RUNS, { body: run })).status).toBe(201)
      return run.event_id
    },
    async list(query) {
      const { status, body } = await ask(`${RUNS}?${query}`)
      expect(status).toBe(200)
      return body as unknown as Json[]
    },
  }
}
