import { z } from '@hono/zod-openapi'
import type { ErrorCode } from '../core/errors.ts'
import { statusOf } from './problem.ts'

/** The properties of a route that determine its error codes. */
export interface Refusable {
  readonly isPublic: boolean
  readonly hasBody: boolean
  /** The route's own codes. */
  readonly refusals?: readonly ErrorCode[]
}

interface Refusal {
  readonly description: string
  readonly content: Readonly<Record<string, { readonly schema: z.ZodType }>>
}

const content = {
  'application/problem+json': {
    schema: z
      .object({
        type: z.string(),
        title: z.string(),
        status: z.number().int(),
        detail: z.string(),
        code: z.string(),
        requestId: z.string(),
        details: z.record(z.string(), z.unknown()).optional(),
      })
      .openapi('Problem'),
  },
}

/** The error responses of a route by status: the codes that all routes have, those that follow from its kind, and its own. */
export function refusalsOf({
  isPublic,
  hasBody,
  refusals = [],
}: Refusable): Readonly<Record<string, Refusal>> {
  const codes: readonly ErrorCode[] = [
    // An unknown parameter, an unknown host name, too many requests.
    'INVALID_ARGUMENT',
    'FORBIDDEN',
    'RATE_LIMITED',
    ...(isPublic ? [] : (['UNAUTHENTICATED', 'UNAVAILABLE'] as const)),
    ...(hasBody ? (['TOO_LARGE', 'UNSUPPORTED_MEDIA_TYPE'] as const) : []),
    ...refusals,
  ]
  const byStatus = new Map<number, ErrorCode[]>()
  for (const code of codes) byStatus.set(statusOf(code), [...(byStatus.get(statusOf(code)) ?? []), code])
  const entries = [...byStatus].map(([status, some]) => [
    status,
    { description: `Error codes: ${some.map(code => `\`${code}\``).join(', ')}.`, content },
  ])
  return { ...Object.fromEntries(entries), default: { description: 'Any other error.', content } }
}
