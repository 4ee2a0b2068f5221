import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import { serve } from './endpoint.ts'
import { without } from './given-options.ts'
import type { LaunchRegistry } from './launch-registry.ts'
import { BY_NAME, paged } from './paging.ts'
import { json } from './reply.ts'
import { limitUpTo, pageOf, text } from './schemas.ts'
import type { ServerContext, ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'

const done = z.object({ runId: z.string() })

/** Orchestrated runs. They belong to the server's own tenant; to others there are none. */
export function serveLaunches(app: OpenAPIHono<ServerEnv>, services: Services): void {
  const registryOf = (c: ServerContext): LaunchRegistry => {
    const { launches, tenant } = services.settings
    return launches !== undefined && c.get('credential').tenant === tenant ? launches : NONE
  }
  serve(
    app,
    {
      method: 'get',
      path: '/v1/launches',
      id: 'listLaunches',
      load: 'light',
      summary: 'The ids of the orchestrated runs, in the order of their names.',
      role: 'reader',
      query: { limit: limitUpTo(1_000, 100), after: text.optional() },
      answers: {
        200: ['A page of ids; `next` is the `after` of the page behind it.', pageOf('launches', z.string())],
      },
    },
    async ({ c, query }) => {
      // One more, to know whether there is more.
      const found = await registryOf(c).list(without({ ...query, limit: query.limit + 1 }))
      return paged('launches', found, BY_NAME, query)
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/launches/{runId}',
      id: 'getLaunch',
      load: 'heavy',
      summary: 'How an orchestrated run stands, from its log: its state, work items, artifacts and issues.',
      role: 'reader',
      refusals: ['RUN_NOT_FOUND', 'EVENT_CHAIN_BROKEN'],
      answers: { 200: ['Its snapshot.', z.looseObject({ run_id: z.string(), run_state: z.string() })] },
    },
    async ({ c, ids }) => json(await registryOf(c).state(ids['runId'])),
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/launches/{runId}/resume',
      id: 'resumeLaunch',
      load: 'light',
      summary:
        'Goes on with an orchestrated run whose definition the server has; otherwise `LAUNCH_UNKNOWN`.',
      role: 'writer',
      body: z.strictObject({ force: z.boolean().optional() }),
      refusals: ['RUN_NOT_FOUND', 'LAUNCH_UNKNOWN', 'LOCKED', 'ILLEGAL_STATE', 'EVENT_CHAIN_BROKEN'],
      answers: { 202: ['It goes on.', done] },
    },
    async ({ c, ids: { runId }, body }) => {
      await registryOf(c).resume(runId, without(body))
      return json({ runId }, 202)
    },
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/launches/{runId}/cancel',
      id: 'cancelLaunch',
      load: 'light',
      summary: 'Cancels an orchestrated run.',
      role: 'writer',
      body: z.strictObject({ reason: z.string().max(1_024).optional() }),
      refusals: ['RUN_NOT_FOUND', 'LOCKED', 'ILLEGAL_STATE', 'EVENT_CHAIN_BROKEN'],
      answers: { 200: ['It is cancelled.', done] },
    },
    async ({ c, ids: { runId }, body }) => {
      await registryOf(c).cancel(runId, without(body))
      return json({ runId })
    },
  )
}

const unknown = async (runId: string): Promise<never> => {
  throw new AnnalsError('RUN_NOT_FOUND', `there is no orchestrated run ${JSON.stringify(runId)}`, { runId })
}

const NONE: LaunchRegistry = { list: async () => [], state: unknown, resume: unknown, cancel: unknown }
