import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import { withoutUndefined } from '../core/options.ts'
import { serve } from './endpoint.ts'
import { pageOfEach } from './paging.ts'
import { json } from './reply.ts'
import { limitUpTo, pageOf, role, text, tokenRecord } from './schemas.ts'
import type { Credential, ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'
import type { CreateTokenOptions } from './tokens.ts'

/** Routes for tokens. An admin manages those of its own tenant; without a token, on a server that needs none, those of all. */
export function serveTokens(app: OpenAPIHono<ServerEnv>, services: Services): void {
  const { tokens } = services
  serve(
    app,
    {
      method: 'get',
      path: '/v1/tokens',
      id: 'listTokens',
      summary: 'The tokens that were not revoked, ordered by id.',
      role: 'admin',
      query: { limit: limitUpTo(1_000, 100), after: text.optional() },
      answers: { 200: ['A page of tokens.', pageOf('tokens', tokenRecord)] },
    },
    async ({ c, query: { limit, after } }) =>
      pageOfEach(
        'tokens',
        tokens.iterate({ ...reachOf(c.get('credential')), after }),
        { limit, signal: c.req.raw.signal },
        ({ id }) => id,
      ),
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/tokens',
      id: 'createToken',
      summary: 'Creates a token. Only this answer contains it; the server stores a hash.',
      role: 'admin',
      body: z.strictObject({
        name: z.string().optional(),
        tenant: z.string().optional(),
        role,
        ttlMs: z.number().optional(),
      }),
      answers: { 201: ['The token.', z.object({ token: z.string(), id: z.string() })] },
    },
    async ({ c, body }) => {
      const { tenant: own = body.tenant } = reachOf(c.get('credential'))
      if (body.tenant !== undefined && body.tenant !== own) {
        throw new AnnalsError('FORBIDDEN', 'a token can be created only for your own tenant', {
          name: 'tenant',
        })
      }
      return json(await tokens.create(withoutUndefined({ ...body, tenant: own }) as CreateTokenOptions), 201)
    },
  )
  serve(
    app,
    {
      method: 'delete',
      path: '/v1/tokens/{tokenId}',
      id: 'revokeToken',
      summary: 'Revokes a token at once. Its event streams end.',
      role: 'admin',
      answers: { 200: ['Whether it existed.', z.object({ revoked: z.boolean() })] },
    },
    async ({ c, ids }) =>
      json({ revoked: await tokens.revoke(ids['tokenId'], reachOf(c.get('credential'))) }),
  )
}

function reachOf({ tokenId, tenant }: Credential): { readonly tenant?: string } {
  return tokenId === undefined ? {} : { tenant }
}
