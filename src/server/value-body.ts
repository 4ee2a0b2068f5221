import { AnnalsError } from '../core/errors.ts'
import type { Value } from '../core/value.ts'
import { fromJson, toJson } from '../core/value-json.ts'
import { mediaType, readBytes, readJson } from './body.ts'
import { MIB, value } from './schemas.ts'
import type { ServerContext } from './server-env.ts'

/** A value as a whole body: bytes as they are, all else as JSON. */

const VALUE_BYTES_MAX = 16 * MIB
const BYTES = 'application/octet-stream'

export const VALUE_TYPES: readonly string[] = ['application/json', BYTES]
export const valueBody: Readonly<Record<string, typeof value>> = Object.fromEntries(
  VALUE_TYPES.map(type => [type, value]),
)

export async function readValue(c: ServerContext): Promise<Value> {
  if (mediaType(c) === BYTES) return readBytes(c, VALUE_BYTES_MAX)
  return fromJson(await readJson(c, VALUE_BYTES_MAX))
}

export function valueResponse(found: Value, headers: Readonly<Record<string, string>>): Response {
  const isBytes = found instanceof Uint8Array
  return new Response(isBytes ? new Uint8Array(found) : JSON.stringify(toJson(found)), {
    headers: {
      'Content-Type': isBytes ? BYTES : 'application/json',
      'Cache-Control': 'no-store',
      // Whatever the bytes look like, no browser takes them for a page.
      'Content-Security-Policy': "default-src 'none'; sandbox",
      ...headers,
    },
  })
}

export function etagOf(version: number): string {
  return `"${version}"`
}

/** The version that a precondition names. */
export function versionIn(etag: string, header: string): number {
  const [, version] = /^"(\d{1,16})"$/.exec(etag) ?? []
  if (version !== undefined) return Number(version)
  throw new AnnalsError('INVALID_ARGUMENT', `${header} must be a version in quotes, such as "3"`, {
    name: header,
  })
}
