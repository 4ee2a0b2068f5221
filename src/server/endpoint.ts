import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError, type ErrorCode } from '../core/errors.ts'
import type { Scope } from '../engine/keys.ts'
import { admitHeavy } from './admission.ts'
import { readJson } from './body.ts'
import { checkRole } from './guard.ts'
import { namesIn, parameterNames } from './path-ids.ts'
import { isPublic } from './public-paths.ts'
import { refusalsOf } from './refusals.ts'
import { Reply, responseOf } from './reply.ts'
import type { ServerContext, ServerEnv } from './server-env.ts'
import type { Role } from './tokens.ts'

type Schema = z.ZodType
type Shape = Readonly<Record<string, Schema>>

export type Load = 'light' | 'heavy'

/** A route. Requests are checked and documented from this one definition. */
export interface Endpoint<Q extends Shape, B extends Schema> {
  readonly method: 'get' | 'post' | 'put' | 'delete'
  /** With `{name}` in place of each id. */
  readonly path: string
  /** The operation id in the OpenAPI document. */
  readonly id: string
  readonly summary: string
  /**
   * Whether a request needs a slot for heavy work. It does if its work grows with the stored data, always or depending on the
   * query. A large body makes any request heavy. Default: light.
   */
  readonly load?: Load | ((query: z.output<z.ZodObject<{ -readonly [K in keyof Q]: Q[K] }>>) => Load)
  /** The role that a token needs; default `reader` for GET, `writer` for others. Public paths need none. */
  readonly role?: Role
  readonly query?: Q
  readonly headers?: Shape
  readonly body?: B
  /** The schema only documents the body; the layer below checks it and reports errors. */
  readonly isCheckedBelow?: boolean
  /** Schemas by media type, for a body that the handler reads itself. */
  readonly rawBody?: Readonly<Record<string, Schema>>
  /** The largest accepted body; default 64 KiB. */
  readonly bytesMax?: number
  readonly answers: Readonly<
    Record<number, readonly [description: string, schema?: Schema, ...types: readonly string[]]>
  >
  /** The route's own error codes, in addition to those that every route has. */
  readonly refusals?: readonly ErrorCode[]
}

export interface Asked<Q extends Shape, B extends Schema> {
  readonly c: ServerContext
  /** The ids in the path, by name, except the run. */
  readonly ids: Readonly<Record<string, string>>
  /** The run or scope in the path. */
  readonly run: Scope
  readonly query: z.output<z.ZodObject<{ -readonly [K in keyof Q]: Q[K] }>>
  readonly body: z.output<B>
}

const BYTES_DEFAULT = 64 * 1024

/** Pages of up to this many entries are light. */
const LIGHT_PAGE_MAX = 1_000

/** The load of a list, which depends on the length of the page. */
export function longPage({ limit }: { readonly limit: number }): Load {
  return limit > LIGHT_PAGE_MAX ? 'heavy' : 'light'
}

/** Adds the endpoint to the routes and to the OpenAPI document. */
export function serve<Q extends Shape, B extends Schema>(
  app: OpenAPIHono<ServerEnv>,
  endpoint: Endpoint<Q, B>,
  answer: (asked: Asked<Q, B>) => Promise<Response | Reply> | Response | Reply,
): void {
  const { method, path, load = 'light', bytesMax = BYTES_DEFAULT, body, isCheckedBelow = false } = endpoint
  const role = roleOf(endpoint)
  const query = endpoint.query === undefined ? undefined : z.strictObject(endpoint.query)
  // The result for the many requests without a query.
  const nothingAsked = query === undefined ? {} : query.safeParse({}).data
  document(app, endpoint)
  app.on(method.toUpperCase(), path.replace(/\{(\w+)\}/g, ':$1'), async c => {
    c.set('route', path)
    if (role !== undefined) checkRole(c, role)
    const { ids, run } = namesIn(path, c.req.raw.url)
    const asked = (c.env?.incoming?.url ?? c.req.url).includes('?')
      ? queryIn(c, query)
      : (nothingAsked ?? queryIn(c, query))
    let content: unknown
    if (body !== undefined) {
      content = await readJson(c, bytesMax)
      if (!isCheckedBelow) content = parsed(body, content, 'body')
    }
    if (load !== 'light' && (load === 'heavy' || load(asked as Asked<Q, B>['query']) === 'heavy')) {
      await admitHeavy(c)
    }
    const answered = await answer({ c, ids, run, query: asked, body: content } as Asked<Q, B>)
    return answered instanceof Reply ? responseOf(c, answered) : answered
  })
}

function document<Q extends Shape, B extends Schema>(
  app: OpenAPIHono<ServerEnv>,
  endpoint: Endpoint<Q, B>,
): void {
  const { method, path, id, summary, load = 'light', query, headers, body, rawBody, answers } = endpoint
  const role = roleOf(endpoint)
  const names = parameterNames(path)
  const content =
    rawBody === undefined
      ? { 'application/json': { schema: body as Schema } }
      : Object.fromEntries(Object.entries(rawBody).map(([type, schema]) => [type, { schema }]))
  const hasBody = body !== undefined || rawBody !== undefined
  app.openAPIRegistry.registerPath({
    method,
    path,
    operationId: id,
    summary,
    'x-annals-load': typeof load === 'string' ? load : 'depends',
    tags: [path.startsWith('/v1/') ? (path.split('/')[2] ?? 'server') : 'server'],
    security: role === undefined ? [] : [{ token: [role] }],
    request: {
      ...(names.length === 0
        ? {}
        : { params: z.object(Object.fromEntries(names.map(name => [name, z.string().min(1)]))) }),
      ...(query === undefined ? {} : { query: z.object(query) }),
      ...(headers === undefined ? {} : { headers: z.object(headers) }),
      ...(hasBody ? { body: { content, required: true } } : {}),
    },
    responses: {
      ...refusalsOf({ ...endpoint, isPublic: role === undefined, hasBody }),
      ...Object.fromEntries(
        Object.entries(answers).map(([status, [description, schema, ...types]]) => [
          status,
          { description, ...(schema === undefined ? {} : { content: contentOf(schema, types) }) },
        ]),
      ),
    },
  })
}

/** The role that a request of this method and path needs; undefined for public paths. */
export function roleOf({
  method,
  path,
  role = method === 'get' ? 'reader' : 'writer',
}: {
  readonly method: string
  readonly path: string
  readonly role?: Role
}): Role | undefined {
  return isPublic(path) ? undefined : role
}

function contentOf(schema: Schema, types: readonly string[]): Record<string, { readonly schema: Schema }> {
  const all = types.length === 0 ? ['application/json'] : types
  return Object.fromEntries(all.map(type => [type, { schema }]))
}

function queryIn(c: ServerContext, schema: z.ZodObject | undefined): unknown {
  if (schema === undefined) return checkNoQuery(c)
  const all = Object.entries(c.req.queries())
  const given = Object.fromEntries(
    all.map(([name, values]) => [name, values.length === 1 ? values[0] : values]),
  )
  return parsed(schema, given, 'query')
}

/** Refuses every parameter: a misspelt one must not be ignored. */
function checkNoQuery(c: ServerContext): Record<string, never> {
  const [name] = Object.keys(c.req.query())
  if (name === undefined) return {}
  throw new AnnalsError('INVALID_ARGUMENT', `${name} is not a parameter of this request`, { name })
}

function parsed<S extends Schema>(schema: S, value: unknown, what: string): z.output<S> {
  const { success, data, error } = schema.safeParse(value)
  if (success) return data as z.output<S>
  const [issue] = error.issues
  const path = issue.code === 'unrecognized_keys' ? [...issue.path, issue.keys[0]] : issue.path
  const name = path.map(String).join('.') || what
  throw new AnnalsError('INVALID_ARGUMENT', `${name}: ${issue.message}`, { name, reason: issue.message })
}
