import type { OpenAPIHono } from '@hono/zod-openapi'
import { invalidArgument } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import { isReservedTenant } from '../core/tenant.ts'
import type { LaunchRegistry } from './launch-registry.ts'
import type { ServerEnv } from './server-env.ts'

export interface ServerOptions {
  /** The address to listen on; `127.0.0.1` without it. One that others reach needs tokens. */
  readonly host?: string
  /** 8765 without it; 0 for any that is free. */
  readonly port?: number
  /**
   * Whether every request needs a token. `off` is for loopback alone, and the default there; a token that is given is
   * looked at all the same.
   */
  readonly auth?: 'required' | 'off'
  /** A token from the server's configuration: it may read and write, as `tenant`. */
  readonly staticToken?: string
  /** Whose data those reach who need no token; `default` without it. */
  readonly tenant?: string
  /** Names under which the server is reached. Without it, those of loopback, or any if it listens elsewhere. */
  readonly hosts?: readonly string[]
  /** Pages of other origins, such as `https://console.example.org`, that may use the server from a browser. */
  readonly origins?: readonly string[]
  /** Requests a minute for each token, or for each address where there is none; no limit without it. */
  readonly rateLimit?: { readonly perMinute: number }
  /** Takes one line of JSON for each request, and for each alert of the ledger. */
  readonly log?: (line: string) => void
  /** Milliseconds since 1970. */
  readonly clock?: () => number
  /** Open event streams at a time; 10,000 without it. */
  readonly streamsMax?: number
  /** Of these, how many one token may have; 1,000 without it. */
  readonly streamsPerToken?: number
  /** How long a stream whose reader takes nothing is kept; a minute without it. */
  readonly streamStallMs?: number
  /** How often a stream on which nothing happens shows that it is alive; 15 s without it. */
  readonly heartbeatMs?: number
  /** How long requests under way may take when the server closes; 10 s without it. */
  readonly closeTimeoutMs?: number
  /**
   * Heavy requests (verification, bundles, audits, long pages, large bodies) at work at a time; 8 without it. The others wait,
   * and tenants take turns.
   */
  readonly heavyMax?: number
  /** Of these, how many one tenant may have; 2 without it. */
  readonly heavyPerTenant?: number
  /** How long a heavy request or a large body waits for its turn before it is refused with 429; 10 s without it. */
  readonly heavyWaitMs?: number
  /** Bytes of large request bodies that are held at a time; 96 MiB without it. */
  readonly bodyBytesMax?: number
  /** Of these, how many one tenant may have; 40 MiB without it, at least 18 MiB, so that the largest body fits. */
  readonly bodyBytesPerTenant?: number
  /** Orchestrated runs that can be looked at, resumed and cancelled. */
  readonly launches?: LaunchRegistry
  /** Further routes to serve, behind the same checks. */
  readonly routes?: readonly OpenAPIHono<ServerEnv>[]
}

/** The options with what they default to. */
export interface ServerSettings
  extends Required<Omit<ServerOptions, 'staticToken' | 'hosts' | 'rateLimit' | 'log' | 'launches'>> {
  readonly staticToken: string | undefined
  /** Undefined for any. */
  readonly hosts: readonly string[] | undefined
  readonly rateLimit: { readonly perMinute: number } | undefined
  readonly log: ((line: string) => void) | undefined
  readonly launches: LaunchRegistry | undefined
}

const LOOPBACK: readonly string[] = ['localhost', '127.0.0.1', '[::1]']
const NAMES: readonly (keyof ServerOptions)[] = [
  'host',
  'port',
  'auth',
  'staticToken',
  'tenant',
  'hosts',
  'origins',
  'rateLimit',
  'log',
  'clock',
  'streamsMax',
  'streamsPerToken',
  'streamStallMs',
  'heartbeatMs',
  'closeTimeoutMs',
  'heavyMax',
  'heavyPerTenant',
  'heavyWaitMs',
  'bodyBytesMax',
  'bodyBytesPerTenant',
  'launches',
  'routes',
]
const MIB = 1024 * 1024
/** The largest body that a route takes, with room to spare. */
const BODY_BYTES_MIN = 18 * MIB
/** Shorter ones can be guessed. */
const STATIC_TOKEN_CHARS_MIN = 8

export function settingsOf(options: ServerOptions): ServerSettings {
  checkOptions('a server', options, NAMES)
  const { host = '127.0.0.1', port = 8765, tenant = 'default', staticToken, rateLimit, log } = options
  const isLocal = isLoopback(host)
  const { auth = isLocal && staticToken === undefined ? 'off' : 'required' } = options
  if (auth !== 'off' && auth !== 'required') throw invalidArgument('auth', "must be 'required' or 'off'")
  if (auth === 'off' && !isLocal) {
    throw invalidArgument('auth', `can't be off on ${host}: only on loopback nobody else can ask`)
  }
  if (isReservedTenant(tenant)) throw invalidArgument('tenant', 'is reserved')
  if (staticToken !== undefined && staticToken.length < STATIC_TOKEN_CHARS_MIN) {
    throw invalidArgument('staticToken', `must have at least ${STATIC_TOKEN_CHARS_MIN} characters`)
  }
  if (!(Number.isSafeInteger(port) && port >= 0 && port <= 65_535)) {
    throw invalidArgument('port', 'must be a whole number from 0 to 65535')
  }
  const numbers = {
    streamsMax: options.streamsMax ?? 10_000,
    streamsPerToken: options.streamsPerToken ?? 1_000,
    streamStallMs: options.streamStallMs ?? 60_000,
    heartbeatMs: options.heartbeatMs ?? 15_000,
    closeTimeoutMs: options.closeTimeoutMs ?? 10_000,
    heavyMax: options.heavyMax ?? 8,
    heavyPerTenant: options.heavyPerTenant ?? 2,
    heavyWaitMs: options.heavyWaitMs ?? 10_000,
    bodyBytesMax: options.bodyBytesMax ?? 96 * MIB,
    bodyBytesPerTenant: options.bodyBytesPerTenant ?? 40 * MIB,
    ...(rateLimit === undefined ? {} : { perMinute: rateLimit.perMinute }),
  }
  for (const [name, value] of Object.entries(numbers)) {
    if (!(Number.isSafeInteger(value) && value > 0)) throw invalidArgument(name, 'must be a positive integer')
  }
  if (numbers.heavyPerTenant > numbers.heavyMax)
    throw invalidArgument('heavyPerTenant', 'must be at most heavyMax')
  if (numbers.bodyBytesPerTenant < BODY_BYTES_MIN) {
    throw invalidArgument('bodyBytesPerTenant', `must be at least ${BODY_BYTES_MIN}: a value may have 16 MiB`)
  }
  if (numbers.bodyBytesPerTenant > numbers.bodyBytesMax) {
    throw invalidArgument('bodyBytesPerTenant', 'must be at most bodyBytesMax')
  }
  const { clock = Date.now } = options
  checkFunction('clock', clock)
  if (log !== undefined) checkFunction('log', log)
  return {
    ...numbers,
    host,
    port,
    auth,
    staticToken,
    tenant,
    hosts: options.hosts?.map(name => name.toLowerCase()) ?? (isLocal ? [...LOOPBACK, host] : undefined),
    origins: options.origins ?? [],
    rateLimit,
    log,
    clock,
    launches: options.launches,
    routes: options.routes ?? [],
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host)
}
