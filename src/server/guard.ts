import { createHash, timingSafeEqual } from 'node:crypto'
import type { MiddlewareHandler } from 'hono'
import { routePath } from 'hono/route'
import { AnnalsError } from '../core/errors.ts'
import { newId } from '../core/id.ts'
import { releaseAll } from './admission.ts'
import { checkSite } from './cross-site.ts'
import { isPublic } from './public-paths.ts'
import type { Allowance } from './rate-limit.ts'
import { isTelemetry, refusal } from './refusal.ts'
import { headerOf } from './request-header.ts'
import type { Credential, ServerContext, ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'
import { ROLES, type Role, TOKEN_PREFIX } from './tokens.ts'

const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
const REQUEST_ID = /^[\w.-]{1,64}$/
const BEARER = /^Bearer ([\x21-\x7e]+)$/i

/**
 * Runs before every route: sets the request id, checks host, site and origin, authenticates, and applies the rate limit.
 * Afterwards it writes one line to the log.
 */
export function guard(services: Services): MiddlewareHandler<ServerEnv> {
  const { metrics, settings } = services
  return async (c, next) => {
    const since = performance.now()
    const given = headerOf(c, 'x-request-id')
    const requestId = given !== undefined && REQUEST_ID.test(given) ? given : newId()
    c.set('requestId', requestId)
    let allowance: Allowance | undefined
    try {
      if (services.isClosing && !isPublic(c.req.path)) {
        throw new AnnalsError('UNAVAILABLE', 'the server is closing')
      }
      checkHost(c, settings.hosts)
      checkSite(c, settings.origins)
      checkOrigin(c, settings.origins)
      if (c.req.method === 'OPTIONS' && headerOf(c, 'access-control-request-method') !== undefined) {
        c.res = new Response(null, { status: 204 })
      } else {
        const who = isPublic(c.req.path) ? anybody(services) : await whoAsks(c, services)
        allowance = services.rateLimit?.take(callerOf(c, who))
        if (allowance?.isAllowed === false) throw tooMany(allowance)
        if (who instanceof AnnalsError) throw who
        c.set('credential', who)
        c.set('db', services.forTenant(who.tenant))
        c.set('admission', services.admission)
        await next()
      }
    } catch (error) {
      c.res = refusal(c, error)
    } finally {
      releaseAll(c)
    }
    // Refused requests count too, and every answer reports the remaining requests.
    allowance ??= services.rateLimit?.take(callerOf(c))
    const { res } = c
    if (c.get('isNamed') !== true || c.get('failure') !== undefined) {
      res.headers.set('X-Request-Id', requestId)
      res.headers.set('X-Content-Type-Options', 'nosniff')
    }
    if (allowance !== undefined) {
      res.headers.set('X-RateLimit-Limit', `${allowance.limit}`)
      res.headers.set('X-RateLimit-Remaining', `${allowance.remaining}`)
    }
    allowOrigin(c, settings.origins)
    // Otherwise a busy keep-alive connection would never end.
    if (services.isClosing && c.env?.outgoing !== undefined) c.env.outgoing.shouldKeepAlive = false
    const ms = performance.now() - since
    metrics.add(c.req.method, c.get('route') ?? routePath(c, -1), res.status, ms)
    settings.log?.(lineOf(c, settings.clock(), ms))
  }
}

/** Throws `FORBIDDEN` if the caller's role is lower. */
export function checkRole(c: ServerContext, role: Role): void {
  const { role: own } = c.get('credential')
  if (ROLES.indexOf(own) >= ROLES.indexOf(role)) return
  throw new AnnalsError('FORBIDDEN', `this request needs the role ${role}, and the token has ${own}`, {
    role,
  })
}

/** Refuses unknown host names, so that a web page cannot reach a local server through DNS rebinding. */
function checkHost(c: ServerContext, hosts: readonly string[] | undefined): void {
  const raw = c.env?.incoming?.rawHeaders ?? []
  checkOnce(raw, 'host')
  const host = headerOf(c, 'host') ?? new URL(c.req.url).host
  checkKnown(host, hosts)
  const target = c.env?.incoming?.url
  // Nearly every request has only a path here.
  if (target === undefined || target.startsWith('/')) return
  const url = new URL(c.req.url)
  checkKnown(url.host, hosts)
  // HTTP uses the request line; a proxy may have checked the header.
  const named = `${url.protocol}//${host}`
  if (URL.canParse(named) && new URL(named).host === url.host) return
  throw new AnnalsError('INVALID_ARGUMENT', 'the request line and the Host header must name the same host')
}

function checkKnown(host: string, hosts: readonly string[] | undefined): void {
  const name = host.replace(/:\d{1,5}$/, '').toLowerCase()
  if (hosts === undefined || hosts.includes(name)) return
  throw new AnnalsError('FORBIDDEN', 'unknown host name')
}

function checkOrigin(c: ServerContext, origins: readonly string[]): void {
  if (READS.has(c.req.method)) return
  const origin = headerOf(c, 'origin')
  if (origin === undefined || origins.includes(origin)) return
  const host = headerOf(c, 'host') ?? new URL(c.req.url).host
  if (origin === `http://${host}` || origin === `https://${host}`) return
  throw new AnnalsError('FORBIDDEN', 'pages of another origin may not write')
}

function allowOrigin(c: ServerContext, origins: readonly string[]): void {
  const origin = headerOf(c, 'origin')
  if (origin === undefined || !origins.includes(origin)) return
  const { headers } = c.res
  headers.set('Access-Control-Allow-Origin', origin)
  headers.append('Vary', 'Origin')
  headers.set('Access-Control-Expose-Headers', 'ETag, Retry-After, X-Request-Id')
  if (c.req.method !== 'OPTIONS') return
  headers.set('Access-Control-Allow-Methods', 'GET, POST, PUT, PATCH, DELETE')
  headers.set(
    'Access-Control-Allow-Headers',
    'Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Request-Id',
  )
  headers.set('Access-Control-Max-Age', '600')
}

/** Refuses repeated headers: Node uses the first one, but a proxy may have checked the last. */
function checkOnce(raw: readonly string[], name: string): void {
  let count = 0
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i].length === name.length && raw[i].toLowerCase() === name) count++
  }
  if (count > 1) throw new AnnalsError('INVALID_ARGUMENT', `only one ${name} header is allowed`, { name })
}

/** The caller of a server that needs no tokens. */
function owner({ settings }: Services): Credential {
  return { tokenId: undefined, tenant: settings.tenant, role: 'admin' }
}

function anybody({ settings }: Services): Credential {
  return { tokenId: undefined, tenant: settings.tenant, role: 'reader' }
}

/** The caller, or the error of the authentication. Without a token on a server that needs none, there is nothing to look up. */
function whoAsks(
  c: ServerContext,
  services: Services,
): Credential | AnnalsError | Promise<Credential | AnnalsError> {
  if (services.settings.auth === 'off' && headerOf(c, 'authorization') === undefined) return owner(services)
  return identify(c, services).catch(refused)
}

async function identify(c: ServerContext, services: Services): Promise<Credential> {
  const { settings, tokens } = services
  const header = headerOf(c, 'authorization')
  if (header === undefined) throw unauthenticated('a token is required: Authorization: Bearer …')
  checkOnce(c.env?.incoming?.rawHeaders ?? [], 'authorization')
  if (header.includes(',')) {
    throw new AnnalsError('INVALID_ARGUMENT', 'only one authorization header is allowed', {
      name: 'authorization',
    })
  }
  const [, token] = BEARER.exec(header) ?? []
  if (token === undefined) throw unauthenticated('the token must be sent as: Authorization: Bearer …')
  if (settings.staticToken !== undefined && isSame(token, settings.staticToken)) {
    return { tokenId: 'static', tenant: settings.tenant, role: 'writer' }
  }
  const record = await tokens.verify(token)
  // TD6: a telemetry service without tokens accepts foreign ones, which its clients may have for another service. A token of
  // ours that is unknown was revoked.
  const isForeign = !token.startsWith(TOKEN_PREFIX)
  if (record === undefined && settings.auth === 'off' && isForeign && isTelemetry(c.req.path))
    return owner(services)
  if (record === undefined) throw unauthenticated('the token is not known, has expired, or was revoked')
  const { id: tokenId, tenant, role, expiresAt } = record
  return { tokenId, tenant, role, ...(expiresAt === undefined ? {} : { expiresAt }) }
}

/** Compares in constant time, whatever their lengths. */
function isSame(a: string, b: string): boolean {
  const hash = (text: string): Buffer => createHash('sha256').update(text, 'utf8').digest()
  return timingSafeEqual(hash(a), hash(b))
}

function unauthenticated(message: string): AnnalsError {
  return new AnnalsError('UNAUTHENTICATED', message)
}

/** Returns the error, so that the request counts for the rate limit before it is refused. This slows down guessing. */
function refused(error: unknown): AnnalsError {
  if (error instanceof AnnalsError) return error
  throw error
}

function callerOf(c: ServerContext, who?: Credential | AnnalsError): string {
  const tokenId = who instanceof AnnalsError ? undefined : who?.tokenId
  return tokenId ?? c.env?.incoming?.socket.remoteAddress ?? '-'
}

function tooMany({ limit, retryAfterSeconds }: Allowance): AnnalsError {
  const message = `more than ${limit} requests a minute`
  return new AnnalsError('RATE_LIMITED', message, { limit, retryAfterSeconds })
}

function lineOf(c: ServerContext, now: number, ms: number): string {
  const { tokenId, tenant } = c.get('credential') ?? {}
  const failure = c.get('failure')
  return JSON.stringify({
    time: new Date(now).toISOString(),
    requestId: c.get('requestId'),
    method: c.req.method,
    path: c.req.path,
    status: c.res.status,
    ms: Math.round(ms * 1_000) / 1_000,
    tenant,
    tokenId,
    address: c.env?.incoming?.socket.remoteAddress,
    ...(failure === undefined ? {} : { code: failure.code, error: failure.text }),
  })
}
