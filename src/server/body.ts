import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import { AnnalsError } from '../core/errors.ts'
import { parseJsonText } from './json-text.ts'
import { headerOf } from './request-header.ts'
import type { ServerContext } from './server-env.ts'

const JSON_TYPE = /^application\/json\s*(;\s*charset=("?)utf-8\2\s*)?$/i

/** The type of the body, without parameters. */
export function mediaType(c: ServerContext): string {
  return (headerOf(c, 'content-type') ?? '').split(';')[0].trim().toLowerCase()
}

/** The body as JSON: of that type, not longer than allowed, not deeper than anything is that can be stored. */
export async function readJson(c: ServerContext, bytesMax: number): Promise<unknown> {
  checkJsonType(c)
  return parseJsonText(textOf(await readBytes(c, bytesMax)))
}

/** The text of a body that says of itself that it is JSON. */
export async function readJsonText(c: ServerContext, bytesMax: number): Promise<string> {
  checkJsonType(c)
  return textOf(await readBytes(c, bytesMax))
}

function checkJsonType(c: ServerContext): void {
  const type = headerOf(c, 'content-type')
  // Most say it in the same word.
  if (type === 'application/json' || (type !== undefined && JSON_TYPE.test(type))) return
  throw new AnnalsError('UNSUPPORTED_MEDIA_TYPE', 'the body must be application/json in UTF-8')
}

/** The bytes of the body; refused before they are all there if they are too many. */
export async function readBytes(c: ServerContext, bytesMax: number): Promise<Uint8Array> {
  if (headerOf(c, 'content-encoding') !== undefined) {
    throw new AnnalsError('UNSUPPORTED_MEDIA_TYPE', 'the body must not be compressed')
  }
  const length = headerOf(c, 'content-length')
  if (length !== undefined && Number(length) > bytesMax) throw tooLarge(bytesMax)
  const incoming = c.env?.incoming
  // Straight from the socket: a `Request` in between would copy every body.
  if (incoming === undefined) return readChunks(c.req.raw.body, bytesMax)
  // A short body comes together with its head, but Node tells of the head first; what has come is told of before a promise is.
  await undefined
  return incoming.complete ? readWhole(incoming, bytesMax) : readIncoming(incoming, bytesMax)
}

/** What is all there, without waiting for events, which cost more than to parse it. */
function readWhole(incoming: IncomingMessage, bytesMax: number): Uint8Array {
  const bytes: Uint8Array = incoming.read() ?? new Uint8Array()
  if (bytes.length > bytesMax) throw tooLarge(bytesMax)
  return bytes
}

/** By events: an iterator would end the connection with the body, and nobody would hear that it was too long. */
function readIncoming(incoming: IncomingMessage, bytesMax: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const chunks: Uint8Array[] = []
    let bytes = 0
    const end = (): void => {
      incoming.off('data', take).off('end', done).off('error', broken).off('close', broken)
    }
    const take = (chunk: Uint8Array): void => {
      bytes += chunk.length
      chunks.push(chunk)
      if (bytes <= bytesMax) return
      end()
      incoming.pause()
      reject(tooLarge(bytesMax))
    }
    const done = (): void => {
      end()
      resolve(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks))
    }
    const broken = (): void => {
      end()
      reject(new AnnalsError('INVALID_ARGUMENT', 'the body broke off', { name: 'body' }))
    }
    incoming.on('data', take).on('end', done).on('error', broken).on('close', broken)
  })
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

function textOf(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) throw new AnnalsError('INVALID_ARGUMENT', 'the body is not UTF-8', { name: 'body' })
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).utf8Slice()
}

function tooLarge(bytesMax: number): AnnalsError {
  return new AnnalsError('TOO_LARGE', `the body may have at most ${bytesMax} bytes`, { bytesMax })
}
