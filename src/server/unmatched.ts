import type { OpenAPIHono } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import type { ServerContext, ServerEnv } from './server-env.ts'

/** The error for a request without a route: no route has this path, or none has this method. */
export function unmatched(app: OpenAPIHono<ServerEnv>, c: ServerContext): AnnalsError {
  const allowed = new Set(
    app.routes
      .filter(({ method, path }) => method !== 'ALL' && fits(path, c.req.path))
      .map(({ method }) => method),
  )
  if (allowed.size === 0) return new AnnalsError('NOT_FOUND', 'no route has this path')
  const allow = [...allowed, ...(allowed.has('GET') ? ['HEAD'] : [])].join(', ')
  return new AnnalsError('METHOD_NOT_ALLOWED', `this path allows ${allow}`, { allow })
}

function fits(template: string, path: string): boolean {
  const parts = template.split('/')
  const segments = path.split('/')
  return (
    parts.length === segments.length &&
    parts.every((part, i) => (part.startsWith(':') ? segments[i] !== '' : part === segments[i]))
  )
}
