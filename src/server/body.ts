import { isUtf8 } from 'node:buffer'
import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { AnnalsError } from '../core/errors.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { admitBody, admitHeavy } from './admission.ts'
import { parseJsonText } from './json-text.ts'
import { parseLargeJson } from './large-json.ts'
import { headerOf } from './request-header.ts'
import type { ServerContext } from './server-env.ts'

const JSON_TYPE = /^application\/json\s*(;\s*charset=("?)utf-8\2\s*)?$/i
/** A longer body waits until there is room for it, and is parsed in slices. */
export const LARGE_BODY_BYTES: number = 64 * 1024
/** A body longer than this also waits for a slot for heavy work. */
const HEAVY_BODY_BYTES = 1024 * 1024
/** SHA-256 takes about a millisecond for this many bytes. */
const HASH_BYTES = 256 * 1024

/** The media type of the body, without parameters. */
export function mediaType(c: ServerContext): string {
  return (headerOf(c, 'content-type') ?? '').split(';')[0].trim().toLowerCase()
}

/** Reads the body as JSON and checks its media type, length and depth. */
export async function readJson(c: ServerContext, bytesMax: number): Promise<unknown> {
  checkJsonType(c)
  const bytes = await readBytes(c, bytesMax)
  return bytes.length > LARGE_BODY_BYTES ? parseLargeJson(bytes) : parseJsonText(textOf(bytes))
}

/** Reads the bytes of a body with a JSON media type. */
export async function readJsonBytes(c: ServerContext, bytesMax: number): Promise<Uint8Array> {
  checkJsonType(c)
  return readBytes(c, bytesMax)
}

function checkJsonType(c: ServerContext): void {
  const type = headerOf(c, 'content-type')
  // Most requests have exactly this text.
  if (type === 'application/json' || (type !== undefined && JSON_TYPE.test(type))) return
  throw new AnnalsError('UNSUPPORTED_MEDIA_TYPE', 'the body must be application/json in UTF-8')
}

/** Reads the bytes of the body. A body that is too long is refused before all of it has arrived. */
export async function readBytes(c: ServerContext, bytesMax: number): Promise<Uint8Array> {
  if (headerOf(c, 'content-encoding') !== undefined) {
    throw new AnnalsError('UNSUPPORTED_MEDIA_TYPE', 'the body must not be compressed')
  }
  const bytes = await received(c, bytesMax)
  if (bytes.length > HEAVY_BODY_BYTES) await admitHeavy(c)
  if (headerOf(c, 'idempotency-key') !== undefined) c.set('bodyHash', await hashOf(bytes))
  return bytes
}

async function received(c: ServerContext, bytesMax: number): Promise<Uint8Array> {
  const length = headerOf(c, 'content-length')
  const bytesGiven = length === undefined ? undefined : Number(length)
  if (bytesGiven !== undefined && bytesGiven > bytesMax) throw tooLarge(bytesMax)
  const admitted = bytesGiven !== undefined && bytesGiven > LARGE_BODY_BYTES ? bytesGiven : LARGE_BODY_BYTES
  // Before reading, so that the bytes stay with the sender meanwhile.
  if (admitted > LARGE_BODY_BYTES) await admitBody(c, admitted)
  const body = new ReceivedBody(c, bytesMax, admitted, bytesGiven)
  const incoming = c.env?.incoming
  // Reads from the socket, because a `Request` would copy every body.
  if (incoming === undefined) return readChunks(c.req.raw.body, body)
  // A short body arrives with its head, but Node reports the head first. After this turn, `complete` is up to date.
  await undefined
  return incoming.complete ? readWhole(incoming, bytesMax) : readIncoming(incoming, body)
}

/** The part of a body that has arrived. */
class ReceivedBody {
  readonly #c: ServerContext
  readonly #bytesMax: number
  readonly #chunks: Uint8Array[] = []
  /** The buffer of a large body. Concatenating chunks at the end would take 10 ms for 16 MiB. */
  readonly #whole: Uint8Array | undefined
  #bytes = 0
  /** The bytes for which room was granted. */
  #admitted: number

  constructor(c: ServerContext, bytesMax: number, admitted: number, bytesGiven: number | undefined) {
    this.#c = c
    this.#bytesMax = bytesMax
    this.#admitted = admitted
    const isLarge = bytesGiven !== undefined && bytesGiven > LARGE_BODY_BYTES
    this.#whole = isLarge ? Buffer.allocUnsafeSlow(bytesGiven) : undefined
  }

  /** Adds bytes. Returns a promise if reading has to wait. The length may be unknown, so it waits for room for the longest body. */
  take(chunk: Uint8Array): Promise<void> | undefined {
    const at = this.#bytes
    this.#bytes += chunk.length
    if (this.#bytes > (this.#whole?.length ?? this.#bytesMax)) throw tooLarge(this.#bytesMax)
    if (this.#whole === undefined) this.#chunks.push(chunk)
    else this.#whole.set(chunk, at)
    if (this.#bytes <= this.#admitted) return undefined
    this.#admitted = this.#bytesMax
    return admitBody(this.#c, this.#bytesMax)
  }

  whole(): Uint8Array {
    if (this.#whole !== undefined) return this.#whole.subarray(0, this.#bytes)
    return this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks, this.#bytes)
  }
}

/** Reads a body that has arrived completely. Waiting for events would cost more than parsing it. */
function readWhole(incoming: IncomingMessage, bytesMax: number): Uint8Array {
  const bytes: Uint8Array = incoming.read() ?? new Uint8Array()
  if (bytes.length > bytesMax) throw tooLarge(bytesMax)
  return bytes
}

/** Reads with events: leaving an iterator early would close the connection before the 413 is sent. */
function readIncoming(incoming: IncomingMessage, body: ReceivedBody): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      incoming.off('data', take).off('end', done).off('error', broken).off('close', broken)
    }
    const fail = (error: unknown): void => {
      end()
      incoming.pause()
      reject(error)
    }
    const take = (chunk: Uint8Array): void => {
      try {
        const room = body.take(chunk)
        if (room === undefined) return
        incoming.pause()
        room.then(() => incoming.resume(), fail)
      } catch (error) {
        fail(error)
      }
    }
    const done = (): void => {
      end()
      resolve(body.whole())
    }
    const broken = (): void => {
      end()
      reject(new AnnalsError('INVALID_ARGUMENT', 'the connection ended within the body', { name: 'body' }))
    }
    incoming.on('data', take).on('end', done).on('error', broken).on('close', broken)
  })
}

async function readChunks(
  stream: ReadableStream<Uint8Array> | null,
  body: ReceivedBody,
): Promise<Uint8Array> {
  if (stream === null) return new Uint8Array()
  // Leaving the loop cancels the stream, so the rest of a body that is too long is not read.
  for await (const chunk of stream as unknown as AsyncIterable<Uint8Array>) await body.take(chunk)
  return body.whole()
}

async function hashOf(bytes: Uint8Array): Promise<string> {
  const hash = createHash('sha256')
  for (let at = 0; at < bytes.length; at += HASH_BYTES) {
    if (isSliceOver()) await nextSlice()
    hash.update(bytes.subarray(at, at + HASH_BYTES))
  }
  return hash.digest('hex')
}

export function textOf(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) throw new AnnalsError('INVALID_ARGUMENT', 'the body is not UTF-8', { name: 'body' })
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).utf8Slice()
}

function tooLarge(bytesMax: number): AnnalsError {
  return new AnnalsError('TOO_LARGE', `the body is longer than ${bytesMax} bytes`, { bytesMax })
}
