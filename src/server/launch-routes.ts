import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import { withoutUndefined } from '../core/options.ts'
import { serve } from './endpoint.ts'
import type { LaunchRegistry } from './launch-registry.ts'
import { BY_NAME, paged } from './paging.ts'
import { json } from './reply.ts'
import { limitUpTo, pageOf, text } from './schemas.ts'
import type { ServerContext, ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'

const done = z.object({ runId: z.string() })

/** Routes for launches. They belong to the server's own tenant; other tenants see none. */
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
      summary: 'The ids of all launches, in alphabetical order.',
      query: { limit: limitUpTo(1_000, 100), after: text.optional() },
      answers: {
        200: ['A page of ids; `next` is the `after` of the next page.', pageOf('launches', z.string())],
      },
    },
    async ({ c, query }) => {
      // One more than the page, to know whether it is the last.
      const found = await registryOf(c).list(withoutUndefined({ ...query, limit: query.limit + 1 }))
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
      summary: 'The state of a launch, from its log: run state, work items, artifacts and issues.',
      refusals: ['RUN_NOT_FOUND', 'EVENT_CHAIN_BROKEN'],
      answers: {
        200: ['The snapshot of the launch.', z.looseObject({ run_id: z.string(), run_state: z.string() })],
      },
    },
    async ({ c, ids }) => json(await registryOf(c).state(ids['runId'])),
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/launches/{runId}/resume',
      id: 'resumeLaunch',
      summary: 'Resumes a launch. 409 with `LAUNCH_UNKNOWN` if the server does not have its definition.',
      body: z.strictObject({ force: z.boolean().optional() }),
      refusals: ['RUN_NOT_FOUND', 'LAUNCH_UNKNOWN', 'LOCKED', 'ILLEGAL_STATE', 'EVENT_CHAIN_BROKEN'],
      answers: { 202: ['The launch is being resumed.', done] },
    },
    async ({ c, ids: { runId }, body }) => {
      await registryOf(c).resume(runId, withoutUndefined(body))
      return json({ runId }, 202)
    },
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/launches/{runId}/cancel',
      id: 'cancelLaunch',
      summary: 'Cancels a launch.',
      body: z.strictObject({ reason: z.string().max(1_024).optional() }),
      refusals: ['RUN_NOT_FOUND', 'LOCKED', 'ILLEGAL_STATE', 'EVENT_CHAIN_BROKEN'],
      answers: { 200: ['The launch is cancelled.', done] },
    },
    async ({ c, ids: { runId }, body }) => {
      await registryOf(c).cancel(runId, withoutUndefined(body))
      return json({ runId })
    },
  )
}

const unknown = async (runId: string): Promise<never> => {
  throw new AnnalsError('RUN_NOT_FOUND', `there is no launch ${JSON.stringify(runId)}`, { runId })
}

const NONE: LaunchRegistry = { list: async () => [], state: unknown, resume: unknown, cancel: unknown }
