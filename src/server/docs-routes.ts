import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { serve } from './endpoint.ts'
import type { ServerEnv } from './server-env.ts'

/** The route of the OpenAPI document. */
export function serveDocs(app: OpenAPIHono<ServerEnv>): void {
  let document: string | undefined
  serve(
    app,
    {
      method: 'get',
      path: '/openapi.json',
      id: 'openapi',
      summary: 'This description, as OpenAPI 3.1.',
      answers: { 200: ['The description.', z.looseObject({ openapi: z.string() })] },
    },
    () => {
      // Built once, on the first request, when all routes exist.
      document ??= describe(app)
      return new Response(document, { headers: { 'Content-Type': 'application/json' } })
    },
  )
}

function describe(app: OpenAPIHono<ServerEnv>): string {
  app.openAPIRegistry.registerComponent('securitySchemes', 'token', { type: 'http', scheme: 'bearer' })
  return JSON.stringify(
    app.getOpenAPI31Document({
      openapi: '3.1.0',
      info: {
        title: 'Annals',
        version: '1',
        description:
          'A database for runs. Ids in paths are percent-encoded; `.`, `..` and ids that begin with `~` get another `~` in ' +
          'front. Errors are problem documents (RFC 9457) with a `code`.',
      },
    }),
  )
}
