import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { serve } from './endpoint.ts'
import type { ServerEnv } from './server-env.ts'

/** The description of all routes; a page shows it. */
export function serveDocs(app: OpenAPIHono<ServerEnv>): void {
  let document: string | undefined
  serve(
    app,
    {
      method: 'get',
      path: '/openapi.json',
      id: 'openapi',
      load: 'light',
      summary: 'This description, OpenAPI 3.1.',
      answers: { 200: ['The description.', z.looseObject({ openapi: z.string() })] },
    },
    () => {
      // Once all routes are there; they don't change any more.
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
          'A database for runs. Ids in paths are percent-encoded; an id that is `.` or `..` or begins with `~` has a `~` ' +
          'in front. Errors are problem documents (RFC 9457) with a `code`.',
      },
    }),
  )
}
