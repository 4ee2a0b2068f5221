import { AnnalsError } from '../core/errors.ts'
import { parseJsonText } from './json-text.ts'
import type { ServerContext } from './server-env.ts'

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const JSON_TYPE = /^application\/json\s*(;\s*charset=("?)utf-8\2\s*)?$/i

/** The type of the body, without parameters. */
export function mediaType(c: ServerContext): string {
  return (c.req.header('Content-Type') ?? '').split(';')[0].trim().toLowerCase()
}

/** The body as JSON: of that type, not longer than allowed, not deeper than anything is that can be stored. */
export async function readJson(c: ServerContext, bytesMax: number): Promise<unknown> {
  const type = c.req.header('Content-Type')
  if (type === undefined || !JSON_TYPE.test(type)) {
    throw new AnnalsError('UNSUPPORTED_MEDIA_TYPE', 'the body must be application/json in UTF-8')
  }
  return parseJsonText(textOf(await readBytes(c, bytesMax)))
}

/** The bytes of the body; refused before they are all there if they are too many. */
export async function readBytes(c: ServerContext, bytesMax: number): Promise<Uint8Array> {
  if (c.req.header('Content-Encoding') !== undefined) {
    throw new AnnalsError('UNSUPPORTED_MEDIA_TYPE', 'the body must not be compressed')
  }
  const length = c.req.header('Content-Length')
  if (length !== undefined) {
    if (Number(length) > bytesMax) throw tooLarge(bytesMax)
    const bytes = new Uint8Array(await c.req.arrayBuffer())
    // Only a program can say another length than there is.
    if (bytes.length > bytesMax) throw tooLarge(bytesMax)
    return bytes
  }
  return readChunks(c.req.raw.body, bytesMax)
}

async function readChunks(body: ReadableStream<Uint8Array> | null, bytesMax: number): Promise<Uint8Array> {
  if (body === null) return new Uint8Array()
  const chunks: Uint8Array[] = []
  let bytes = 0
  // Leaving the loop ends the stream: what is too much is not read.
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    bytes += chunk.length
    if (bytes > bytesMax) throw tooLarge(bytesMax)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

export function textOf(bytes: Uint8Array): string {
  try {
    return UTF8.decode(bytes)
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    throw new AnnalsError('INVALID_ARGUMENT', 'the body is not UTF-8', { name: 'body' })
  }
}

function tooLarge(bytesMax: number): AnnalsError {
  return new AnnalsError('TOO_LARGE', `the body may have at most ${bytesMax} bytes`, { bytesMax })
}
