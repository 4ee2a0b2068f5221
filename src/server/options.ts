import type { OpenAPIHono } from '@hono/zod-openapi'
import { invalidArgument } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import { isReservedTenant } from '../core/tenant.ts'
import type { LaunchRegistry } from './launch-registry.ts'
import type { ServerEnv } from './server-env.ts'

/** Options of `createServer` and `createApp`. */
export interface ServerOptions {
  /** The address to listen on; default `127.0.0.1`. An address that other machines can reach requires tokens. */
  readonly host?: string
  /** The port to listen on; default 8765. 0 takes any free port. */
  readonly port?: number
  /**
   * Whether every request needs a token. `off` is allowed only on a loopback address, and is the default there. A token that
   * is sent anyway is still checked.
   */
  readonly auth?: 'required' | 'off'
  /** A fixed token with the role `writer` for `tenant`. */
  readonly staticToken?: string
  /** The tenant of requests without a token; default `default`. */
  readonly tenant?: string
  /** The accepted host names. Default: those of loopback, or any name on another address. */
  readonly hosts?: readonly string[]
  /** Other origins, such as `https://console.example.org`, whose pages may use the server from a browser. */
  readonly origins?: readonly string[]
  /** The most requests per minute for each token, or for each address without a token; default: no limit. */
  readonly rateLimit?: { readonly perMinute: number }
  /** Receives one line of JSON for each request and for each ledger alert. */
  readonly log?: (line: string) => void
  /** Returns milliseconds since 1970; default `Date.now`. */
  readonly clock?: () => number
  /** The most event streams open at a time; default 10,000. */
  readonly streamsMax?: number
  /** The most event streams for each token; default 1,000. */
  readonly streamsPerToken?: number
  /** A stream whose client reads nothing is closed after this time; default 60 s. */
  readonly streamStallMs?: number
  /** The interval of heartbeats on an idle stream; default 15 s. */
  readonly heartbeatMs?: number
  /** How long `close` waits for open requests; default 10 s. */
  readonly closeTimeoutMs?: number
  /**
   * The most heavy requests (verification, bundles, audits, long pages, large bodies) processed at a time; default 8. Others
   * wait, and tenants take turns.
   */
  readonly heavyMax?: number
  /** The most heavy requests for each tenant; default 2. */
  readonly heavyPerTenant?: number
  /** How long a heavy request or a large body waits before it is refused with 429; default 10 s. */
  readonly heavyWaitMs?: number
  /** The most bytes of large request bodies in memory at a time; default 96 MiB. */
  readonly bodyBytesMax?: number
  /** The same for each tenant; default 40 MiB. At least 18 MiB, so that the largest body fits. */
  readonly bodyBytesPerTenant?: number
  /** The launches that requests can read, resume and cancel. */
  readonly launches?: LaunchRegistry
  /** Further routes, protected by the same checks. */
  readonly routes?: readonly OpenAPIHono<ServerEnv>[]
}

/** The options with their defaults. */
export interface ServerSettings
  extends Required<Omit<ServerOptions, 'staticToken' | 'hosts' | 'rateLimit' | 'log' | 'launches'>> {
  readonly staticToken: string | undefined
  /** Undefined accepts any name. */
  readonly hosts: readonly string[] | undefined
  readonly rateLimit: { readonly perMinute: number } | undefined
  readonly log: ((line: string) => void) | undefined
  readonly launches: LaunchRegistry | undefined
}

const LOOPBACK: readonly string[] = ['localhost', '127.0.0.1', '[::1]']
const MIB = 1024 * 1024
/** The options that are positive integers, with their defaults. */
const NUMBERS = {
  streamsMax: 10_000,
  streamsPerToken: 1_000,
  streamStallMs: 60_000,
  heartbeatMs: 15_000,
  closeTimeoutMs: 10_000,
  heavyMax: 8,
  heavyPerTenant: 2,
  heavyWaitMs: 10_000,
  bodyBytesMax: 96 * MIB,
  bodyBytesPerTenant: 40 * MIB,
} as const satisfies Partial<Record<keyof ServerOptions, number>>
const OTHERS: readonly (keyof ServerOptions)[] = [
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
  'launches',
  'routes',
]
/** More than the largest body that a route accepts. */
const BODY_BYTES_MIN = 18 * MIB
/** Shorter tokens can be guessed. */
const STATIC_TOKEN_CHARS_MIN = 8

export function settingsOf(options: ServerOptions): ServerSettings {
  checkOptions('a server', options, [...Object.keys(NUMBERS), ...OTHERS])
  const { host = '127.0.0.1', port = 8765, tenant = 'default', staticToken, rateLimit, log } = options
  const isLocal = isLoopback(host)
  const { auth = isLocal && staticToken === undefined ? 'off' : 'required' } = options
  if (auth !== 'off' && auth !== 'required') throw invalidArgument('auth', "must be 'required' or 'off'")
  if (auth === 'off' && !isLocal) {
    throw invalidArgument(
      'auth',
      `cannot be off on ${host}, which other machines may reach; only on a loopback address`,
    )
  }
  if (isReservedTenant(tenant)) throw invalidArgument('tenant', 'is reserved')
  if (staticToken !== undefined && staticToken.length < STATIC_TOKEN_CHARS_MIN) {
    throw invalidArgument('staticToken', `must have at least ${STATIC_TOKEN_CHARS_MIN} characters`)
  }
  if (!(Number.isSafeInteger(port) && port >= 0 && port <= 65_535)) {
    throw invalidArgument('port', 'must be a whole number from 0 to 65535')
  }
  const numbers: Record<keyof typeof NUMBERS, number> = { ...NUMBERS }
  for (const name of Object.keys(NUMBERS) as (keyof typeof NUMBERS)[]) {
    numbers[name] = checkPositive(name, options[name] ?? NUMBERS[name])
  }
  if (rateLimit !== undefined) checkPositive('perMinute', rateLimit.perMinute)
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

function checkPositive(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value
  throw invalidArgument(name, 'must be a positive integer')
}
