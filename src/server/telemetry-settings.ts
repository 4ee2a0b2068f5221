import { AnnalsError } from '../core/errors.ts'
import type { ServerOptions } from './options.ts'

export type Environment = Readonly<Record<string, string | undefined>>

const TRUE: readonly string[] = ['1', 'true', 'yes', 'on']
const FALSE: readonly string[] = ['', '0', 'false', 'no', 'off']
const REQUESTS_PER_MINUTE = 60

/**
 * TD6: what `TELEMETRY_API_AUTH_…` and `TELEMETRY_RATE_LIMIT_…` mean for a server. Refuses what can't be meant: a server
 * without the guard that somebody wanted must not start.
 */
export function telemetrySettings(
  env: Environment,
): Pick<ServerOptions, 'auth' | 'staticToken' | 'rateLimit'> {
  const token = env['TELEMETRY_API_AUTH_TOKEN'] ?? ''
  const isGuarded = flagOf(env, 'TELEMETRY_API_AUTH_ENABLED')
  if (isGuarded && token === '') {
    throw refused('TELEMETRY_API_AUTH_TOKEN', 'must be set, as TELEMETRY_API_AUTH_ENABLED asks for a token')
  }
  // As it travels in a header.
  if (isGuarded && !/^[\x21-\x7e]+$/.test(token)) {
    throw refused('TELEMETRY_API_AUTH_TOKEN', 'must be printable ASCII without spaces')
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
  throw refused(name, `must be one of ${TRUE.join(', ')} or ${FALSE.slice(1).join(', ')}`)
}

function rateOf(text: string | undefined): number {
  if (text === undefined || text === '') return REQUESTS_PER_MINUTE
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text)
  throw refused('TELEMETRY_RATE_LIMIT_RPM', 'must be a whole number, 1 or more')
}

function refused(name: string, why: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, { name })
}
