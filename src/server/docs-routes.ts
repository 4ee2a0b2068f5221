import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { DOCS_PAGE, DOCS_SCRIPT } from './docs-page.ts'
import { serve } from './endpoint.ts'
import type { ServerEnv } from './server-env.ts'

/** Nothing comes from elsewhere, and nothing is sent elsewhere. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/** The description of all routes, and a page to read it. */
export function serveDocs(app: OpenAPIHono<ServerEnv>): void {
  let document: string | undefined
  serve(
    app,
    {
      method: 'get',
      path: '/openapi.json',
      id: 'openapi',
      summary: 'This description, OpenAPI 3.1.',
      answers: { 200: ['The description.', z.looseObject({ openapi: z.string() })] },
    },
    () => {
      // Once all routes are there; they don't change any more.
      document ??= describe(app)
      return new Response(document, { headers: { 'Content-Type': 'application/json' } })
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/docs',
      id: 'docs',
      summary: 'A page to read this description.',
      answers: { 200: ['The page.', z.string(), 'text/html'] },
    },
    () => file(DOCS_PAGE, 'text/html; charset=utf-8'),
  )
  serve(
    app,
    {
      method: 'get',
      path: '/docs/page.js',
      id: 'docsScript',
      summary: 'What the page does.',
      answers: { 200: ['The script.', z.string(), 'text/javascript'] },
    },
    () => file(DOCS_SCRIPT, 'text/javascript; charset=utf-8'),
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

function file(content: string, type: string): Response {
  return new Response(content, {
    headers: {
      'Content-Type': type,
      'Content-Security-Policy': POLICY,
      'X-Content-Type-Options': 'nosniff',
      'Referrer-Policy': 'no-referrer',
    },
  })
}
