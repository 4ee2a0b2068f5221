import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { withoutUndefined } from '../core/options.ts'
import { parseNamespace } from '../engine/keys.ts'
import { serve } from './endpoint.ts'
import { cursorOf, pageOfEach, partsOf } from './paging.ts'
import { json } from './reply.ts'
import { cursor, limitUpTo, pageOf, scope, text } from './schemas.ts'
import type { ServerEnv } from './server-env.ts'

const LIMIT_DEFAULT = 100
const LIMIT_MAX = 1_000

/** Routes for scopes that hold data but have no run. */
export function serveScopes(app: OpenAPIHono<ServerEnv>): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/scopes',
      id: 'listScopes',
      load: 'heavy',
      summary: 'The scopes that hold data but have no run, in byte order.',
      query: {
        prefix: text.optional(),
        limit: limitUpTo(LIMIT_MAX, LIMIT_DEFAULT),
        after: cursor.optional(),
      },
      answers: { 200: ['A page of scopes.', pageOf('scopes', scope)] },
    },
    async ({ c, query: { prefix, limit, after } }) =>
      pageOfEach(
        'scopes',
        c
          .get('db')
          .iterateScopes(
            withoutUndefined({ prefix }),
            after === undefined ? undefined : parseNamespace(partsOf(after, ['string'])[0]),
          ),
        { limit, signal: c.req.raw.signal },
        last => cursorOf(last.toString()),
      ),
  )
  serve(
    app,
    {
      method: 'delete',
      path: '/v1/scopes/{runId}',
      id: 'dropScope',
      load: 'heavy',
      summary: 'Deletes all data of a scope without a run permanently.',
      role: 'admin',
      refusals: ['INVALID_OPERATION'],
      answers: { 200: ['The scope is empty.', z.object({})] },
    },
    async ({ c, run }) => {
      await c.get('db').drop(run)
      return json({})
    },
  )
}
