import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import { serve } from './endpoint.ts'
import { json } from './reply.ts'
import type { ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'

const READY_TIMEOUT_MS = 2_000
const LATE = Symbol('late')

function later(ms: number): Promise<typeof LATE> {
  return new Promise(resolve => setTimeout(() => resolve(LATE), ms).unref())
}

/** Whether the store was opened read-only. After a failed write, `cause` tells what happened. */
function isReadOnly(error: unknown): boolean {
  return error instanceof AnnalsError && error.code === 'READ_ONLY' && error.details['cause'] === undefined
}

const PROMETHEUS = 'text/plain; version=0.0.4; charset=utf-8'

/** Routes for readiness, identity and metrics. */
export function serveMonitoring(app: OpenAPIHono<ServerEnv>, services: Services): void {
  serve(
    app,
    {
      method: 'get',
      path: '/ready',
      id: 'ready',
      summary:
        'Whether the server is ready. It is not while it closes, or if its database does not answer or is read-only.',
      answers: {
        200: ['The server is ready.', z.object({ status: z.literal('ready') })],
        503: [
          'The server is not ready.',
          z.object({ status: z.enum(['closing', 'unavailable', 'read-only']) }),
        ],
      },
    },
    async ({ c }) => {
      if (services.isClosing) return json({ status: 'closing' }, 503)
      try {
        const db = c.get('db')
        const answered = db.kv.exists('_ready', 'ready').then(() => db.checkWritable())
        if ((await Promise.race([answered, later(READY_TIMEOUT_MS)])) === LATE)
          throw new Error('no answer in time')
        return json({ status: 'ready' })
      } catch (error) {
        c.set('failure', { code: 'UNAVAILABLE', text: String(error) })
        return json({ status: isReadOnly(error) ? 'read-only' : 'unavailable' }, 503)
      }
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/store',
      id: 'store',
      summary:
        'The identity of the store: its id, and device and inode of its folder. A program that finds a folder locked can check whether this server has it open.',
      answers: {
        200: [
          'The identity; empty for a store on PostgreSQL or in memory.',
          z.object({
            storeId: z.string().optional(),
            folder: z.object({ device: z.string(), inode: z.string() }).optional(),
          }),
        ],
      },
    },
    ({ c }) => {
      const { storeId, folder } = c.get('db').stats()
      return json({ storeId, folder })
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/metrics/prometheus',
      id: 'prometheus',
      summary: 'Metrics of the server and the ledger, for Prometheus.',
      answers: { 200: ['The metrics.', z.string(), 'text/plain'] },
    },
    ({ c }) =>
      new Response(
        services.metrics.text(c.get('credential').tokenId === undefined ? services.handles() : [c.get('db')]),
        {
          headers: { 'Content-Type': PROMETHEUS, 'Cache-Control': 'no-store' },
        },
      ),
  )
}
