import { AnnalsError } from '../core/errors.ts'
import { callerIsGone } from './fair-share.ts'
import { isServersFault, problemOf } from './problem.ts'
import type { ServerContext } from './server-env.ts'

/** Routes of the telemetry interface, whose errors have the form `{detail}`. */
const TELEMETRY = /^\/(health$|metrics$|api\/v1\/|telemetry\/)/

export function isTelemetry(path: string): boolean {
  return TELEMETRY.test(path)
}

/** The response for an error. The log gets more details than the caller. */
export function refusal(c: ServerContext, thrown: unknown): Response {
  const { signal } = c.req.raw
  // Work that was stopped because the caller has gone is not an error.
  const error = signal.aborted && thrown === signal.reason ? callerIsGone() : thrown
  const problem = problemOf(error, c.get('requestId'))
  c.set('failure', {
    code: problem.code,
    // The stack is for the log only.
    text: isServersFault(error) && error instanceof Error ? `${error.stack}` : problem.detail,
  })
  const { status, detail, code } = problem
  const isPlain = isTelemetry(c.req.path)
  const headers: Record<string, string> = {
    'Content-Type': isPlain ? 'application/json' : 'application/problem+json',
    'Cache-Control': 'no-store',
  }
  if (code === 'UNAUTHENTICATED') headers['WWW-Authenticate'] = 'Bearer'
  if (code === 'RATE_LIMITED' && error instanceof AnnalsError) {
    const { limit, retryAfterSeconds } = error.details
    headers['Retry-After'] = `${retryAfterSeconds ?? 1}`
    if (limit !== undefined) {
      headers['X-RateLimit-Limit'] = `${limit}`
      headers['X-RateLimit-Remaining'] = '0'
    }
  }
  if (code === 'METHOD_NOT_ALLOWED' && error instanceof AnnalsError)
    headers['Allow'] = `${error.details['allow']}`
  if (status === 503) headers['Retry-After'] = '1'
  return new Response(JSON.stringify(isPlain ? { detail } : problem), { status, headers })
}
