import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError, type ErrorCode } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
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

/** A route, told once: what is checked is what is documented. */
export interface Endpoint<Q extends Shape, B extends Schema> {
  readonly method: 'get' | 'post' | 'put' | 'delete'
  /** With `{name}` for each id in it. */
  readonly path: string
  /** The name of the operation. */
  readonly id: string
  readonly summary: string
  /**
   * Whether it takes a slot for heavy work: because its work grows with what is stored, or depending on what is asked for.
   * A large body makes any request heavy.
   */
  readonly load: Load | ((query: z.output<z.ZodObject<{ -readonly [K in keyof Q]: Q[K] }>>) => Load)
  /** Who may ask; absent for what needs no token. */
  readonly role?: Role
  readonly query?: Q
  readonly headers?: Shape
  readonly body?: B
  /** The schema says what a body looks like, and somebody below says what is wrong with it, in its own words. */
  readonly isCheckedBelow?: boolean
  /** A body that is not JSON, or need not be: the handler reads it. By media type. */
  readonly rawBody?: Readonly<Record<string, Schema>>
  /** 64 KiB without it. */
  readonly bytesMax?: number
  readonly answers: Readonly<
    Record<number, readonly [description: string, schema?: Schema, ...types: readonly string[]]>
  >
  /** The codes of what it refuses, beside those that follow from the rest. */
  readonly refusals?: readonly ErrorCode[]
}

export interface Asked<Q extends Shape, B extends Schema> {
  readonly c: ServerContext
  /** The ids in the path, by name, but for that of a run. */
  readonly ids: Readonly<Record<string, string>>
  /** The run in the path of a run, or of what is below it. */
  readonly run: Scope
  readonly query: z.output<z.ZodObject<{ -readonly [K in keyof Q]: Q[K] }>>
  readonly body: z.output<B>
}

const BYTES_DEFAULT = 64 * 1024

/** Pages of up to so many entries are light. */
const LIGHT_PAGE_MAX = 1_000

/** The load of a list: a long page is heavy. */
export function longPage({ limit }: { readonly limit: number }): Load {
  return limit > LIGHT_PAGE_MAX ? 'heavy' : 'light'
}

/** Serves an endpoint and documents it. */
export function serve<Q extends Shape, B extends Schema>(
  app: OpenAPIHono<ServerEnv>,
  endpoint: Endpoint<Q, B>,
  answer: (asked: Asked<Q, B>) => Promise<Response | Reply> | Response | Reply,
): void {
  const { method, path, role, load, bytesMax = BYTES_DEFAULT, body, isCheckedBelow = false } = endpoint
  const query = endpoint.query === undefined ? undefined : z.strictObject(endpoint.query)
  // Of most requests there is nothing to look at.
  const nothingAsked = query === undefined ? {} : query.safeParse({}).data
  invariant((role === undefined) === isPublic(path), `${path} has a role, or needs no token`)
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
  const { method, path, id, summary, role, query, headers, body, rawBody, answers } = endpoint
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
    'x-annals-load': typeof endpoint.load === 'string' ? endpoint.load : 'depends',
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
      ...refusalsOf({ ...endpoint, hasBody }),
      ...Object.fromEntries(
        Object.entries(answers).map(([status, [description, schema, ...types]]) => [
          status,
          { description, ...(schema === undefined ? {} : { content: contentOf(schema, types) }) },
        ]),
      ),
    },
  })
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

/** A misspelt option must not be an option left out. */
function checkNoQuery(c: ServerContext): Record<string, never> {
  const [name] = Object.keys(c.req.query())
  if (name === undefined) return {}
  throw new AnnalsError('INVALID_ARGUMENT', `${name} is no parameter of this`, { name })
}

function parsed<S extends Schema>(schema: S, value: unknown, what: string): z.output<S> {
  const { success, data, error } = schema.safeParse(value)
  if (success) return data as z.output<S>
  const [issue] = error.issues
  const path = issue.code === 'unrecognized_keys' ? [...issue.path, issue.keys[0]] : issue.path
  const name = path.map(String).join('.') || what
  throw new AnnalsError('INVALID_ARGUMENT', `${name}: ${issue.message}`, { name, reason: issue.message })
}
