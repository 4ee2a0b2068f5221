import { invalidArgument } from '../core/errors.ts'
import type { ServerOptions } from './options.ts'

/** Environment variables, such as `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>

const TRUE: readonly string[] = ['1', 'true', 'yes', 'on']
const FALSE: readonly string[] = ['', '0', 'false', 'no', 'off']
const REQUESTS_PER_MINUTE = 60

/**
 * TD6: server options from the environment variables `TELEMETRY_API_AUTH_…` and `TELEMETRY_RATE_LIMIT_…`. Throws for invalid
 * values: a server must not start without the protection that was asked for.
 */
export function telemetrySettings(
  env: Environment,
): Pick<ServerOptions, 'auth' | 'staticToken' | 'rateLimit'> {
  const token = env['TELEMETRY_API_AUTH_TOKEN'] ?? ''
  const isGuarded = flagOf(env, 'TELEMETRY_API_AUTH_ENABLED')
  if (isGuarded && token === '') {
    throw invalidArgument('TELEMETRY_API_AUTH_TOKEN', 'must be set, because TELEMETRY_API_AUTH_ENABLED is on')
  }
  // The token is sent in a header.
  if (isGuarded && !/^[\x21-\x7e]+$/.test(token)) {
    throw invalidArgument('TELEMETRY_API_AUTH_TOKEN', 'must be printable ASCII without spaces')
  }
  const isLimited = flagOf(env, 'TELEMETRY_RATE_LIMIT_ENABLED')
  const perMinute = rateOf(env['TELEMETRY_RATE_LIMIT_RPM'])
  return {
    ...(isGuarded ? { auth: 'required', staticToken: token } : {}),
    ...(isLimited ? { rateLimit: { perMinute } } : {}),
  }
}

function flagOf(env: Environment, name: string): boolean {
  const text = (env[name] ?? '').trim().toLowerCase()
  if (TRUE.includes(text)) return true
  if (FALSE.includes(text)) return false
  throw invalidArgument(name, `must be one of ${TRUE.join(', ')} or ${FALSE.slice(1).join(', ')}`)
}

function rateOf(text: string | undefined): number {
  if (text === undefined || text === '') return REQUESTS_PER_MINUTE
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text)
  throw invalidArgument('TELEMETRY_RATE_LIMIT_RPM', 'must be a whole number, 1 or more')
}
