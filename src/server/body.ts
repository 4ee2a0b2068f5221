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
/** A longer body waits until there is room for its bytes, and is parsed in slices. */
export const LARGE_BODY_BYTES: number = 64 * 1024
/** A still longer one waits for a slot for heavy work too. */
const HEAVY_BODY_BYTES = 1024 * 1024
/** SHA-256 takes about a millisecond for so much. */
const HASH_BYTES = 256 * 1024

/** The type of the body, without parameters. */
export function mediaType(c: ServerContext): string {
  return (headerOf(c, 'content-type') ?? '').split(';')[0].trim().toLowerCase()
}

/** The body as JSON: of that type, not longer than allowed, not deeper than anything is that can be stored. */
export async function readJson(c: ServerContext, bytesMax: number): Promise<unknown> {
  checkJsonType(c)
  const bytes = await readBytes(c, bytesMax)
  return bytes.length > LARGE_BODY_BYTES ? parseLargeJson(bytes) : parseJsonText(textOf(bytes))
}

/** The bytes of a body that says of itself that it is JSON. */
export async function readJsonBytes(c: ServerContext, bytesMax: number): Promise<Uint8Array> {
  checkJsonType(c)
  return readBytes(c, bytesMax)
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
  // Before any of it is read: meanwhile it stays with the sender.
  if (admitted > LARGE_BODY_BYTES) await admitBody(c, admitted)
  const body = new ReceivedBody(c, bytesMax, admitted, bytesGiven)
  const incoming = c.env?.incoming
  // Straight from the socket: a `Request` in between would copy every body.
  if (incoming === undefined) return readChunks(c.req.raw.body, body)
  // A short body comes together with its head, but Node tells of the head first; what has come is told of before a promise is.
  await undefined
  return incoming.complete ? readWhole(incoming, bytesMax) : readIncoming(incoming, body)
}

/** What has come of a body. */
class ReceivedBody {
  readonly #c: ServerContext
  readonly #bytesMax: number
  readonly #chunks: Uint8Array[] = []
  /** Where the bytes of a large body are put as they come: to put them together at its end would take 10 ms for 16 MiB. */
  readonly #whole: Uint8Array | undefined
  #bytes = 0
  /** As many bytes as there is room for. */
  #admitted: number

  constructor(c: ServerContext, bytesMax: number, admitted: number, bytesGiven: number | undefined) {
    this.#c = c
    this.#bytesMax = bytesMax
    this.#admitted = admitted
    const isLarge = bytesGiven !== undefined && bytesGiven > LARGE_BODY_BYTES
    this.#whole = isLarge ? Buffer.allocUnsafeSlow(bytesGiven) : undefined
  }

  /** Takes the next bytes. A promise, if more of them have to wait: nobody knows how many will come, so there is room for all that may. */
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

/** What is all there, without waiting for events, which cost more than to parse it. */
function readWhole(incoming: IncomingMessage, bytesMax: number): Uint8Array {
  const bytes: Uint8Array = incoming.read() ?? new Uint8Array()
  if (bytes.length > bytesMax) throw tooLarge(bytesMax)
  return bytes
}

/** By events: an iterator would end the connection with the body, and nobody would hear that it was too long. */
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
      reject(new AnnalsError('INVALID_ARGUMENT', 'the body broke off', { name: 'body' }))
    }
    incoming.on('data', take).on('end', done).on('error', broken).on('close', broken)
  })
}

async function readChunks(
  stream: ReadableStream<Uint8Array> | null,
  body: ReceivedBody,
): Promise<Uint8Array> {
  if (stream === null) return new Uint8Array()
  // Leaving the loop ends the stream: what is too much is not read.
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
  return new AnnalsError('TOO_LARGE', `the body may have at most ${bytesMax} bytes`, { bytesMax })
}
