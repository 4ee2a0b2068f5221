import { AnnalsError } from '../core/errors.ts'
import type { Value } from '../core/value.ts'
import { fromLargeJson } from '../core/value-json.ts'
import { mediaType, readBytes, readJson } from './body.ts'
import { JsonPieces } from './json-pieces.ts'
import { streamOf } from './piece-stream.ts'
import { MIB, value } from './schemas.ts'
import type { ServerContext } from './server-env.ts'

/** Values as whole bodies: bytes as they are, other values as JSON. */

const VALUE_BYTES_MAX = 16 * MIB
const BYTES = 'application/octet-stream'
const PART_BYTES = 256 * 1024

export const VALUE_TYPES: readonly string[] = ['application/json', BYTES]
export const valueBody: Readonly<Record<string, typeof value>> = Object.fromEntries(
  VALUE_TYPES.map(type => [type, value]),
)

export async function readValue(c: ServerContext): Promise<Value> {
  if (mediaType(c) === BYTES) return readBytes(c, VALUE_BYTES_MAX)
  return fromLargeJson(await readJson(c, VALUE_BYTES_MAX))
}

/** A long value is sent piece by piece, as fast as the client reads. */
export async function valueResponse(
  found: Value,
  headers: Readonly<Record<string, string>>,
): Promise<Response> {
  const isBytes = found instanceof Uint8Array
  return new Response(isBytes ? bytesBody(found) : await jsonBody(found), {
    headers: {
      'Content-Type': isBytes ? BYTES : 'application/json',
      'Cache-Control': 'no-store',
      // A browser must not run stored bytes as a page.
      'Content-Security-Policy': "default-src 'none'; sandbox",
      ...headers,
    },
  })
}

async function jsonBody(found: Value): Promise<string | ReadableStream<Uint8Array>> {
  const pieces = new JsonPieces(found, 'value')
  let first: string | undefined = await pieces.next()
  if (pieces.isDone) return first
  return streamOf(async () => {
    const piece = first ?? (pieces.isDone ? undefined : await pieces.next())
    first = undefined
    return piece
  })
}

function bytesBody(bytes: Uint8Array): Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> {
  if (bytes.length <= PART_BYTES) return new Uint8Array(bytes)
  let at = 0
  return streamOf(async () => {
    const part = at < bytes.length ? bytes.subarray(at, at + PART_BYTES) : undefined
    at += PART_BYTES
    return part
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
