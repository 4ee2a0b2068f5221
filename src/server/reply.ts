import { allPieces, JsonPieces, PIECE_CHARS } from './json-pieces.ts'
import { streamOf } from './piece-stream.ts'
import type { ServerContext } from './server-env.ts'

/**
 * A JSON answer before it becomes a `Response`. The common headers are set when the `Response` is made: setting them later
 * makes Node build the headers twice, which costs a tenth of an append.
 */
export class Reply {
  readonly status: number
  /** A long body is a list of pieces, which are sent one by one. */
  readonly body: string | readonly string[]
  /** In addition to the common headers. */
  readonly headers: Readonly<Record<string, string>> | undefined

  constructor(
    body: string | readonly string[],
    status: number,
    headers: Readonly<Record<string, string>> | undefined,
  ) {
    this.body = body
    this.status = status
    this.headers = headers
  }
}

/** A short JSON answer, encoded at once. */
export function json(
  value: unknown,
  status: number = 200,
  headers?: Readonly<Record<string, string>>,
): Reply {
  return new Reply(JSON.stringify(value), status, headers)
}

/** A JSON answer of any length, encoded in slices: plain JSON, or a record with values. */
export async function largeJson(
  value: unknown,
  kind: 'value' | 'plain',
  status: number = 200,
  headers?: Readonly<Record<string, string>>,
): Promise<Reply> {
  const pieces = await allPieces(new JsonPieces(value, kind))
  return jsonPieces(pieces, status, headers)
}

/** An answer from JSON text. */
export function jsonText(
  text: string,
  status: number = 200,
  headers?: Readonly<Record<string, string>>,
): Reply {
  return new Reply(text, status, headers)
}

/** An answer from pieces of JSON text, which are grouped to a good length. */
export function jsonPieces(
  pieces: readonly string[],
  status: number = 200,
  headers?: Readonly<Record<string, string>>,
): Reply {
  const grouped: string[] = []
  let group = ''
  for (const piece of pieces) {
    group += piece
    if (group.length < PIECE_CHARS) continue
    grouped.push(group)
    group = ''
  }
  if (grouped.length === 0) return new Reply(group, status, headers)
  return new Reply([...grouped, group], status, headers)
}

export function responseOf(c: ServerContext, { body, status, headers: own }: Reply): Response {
  c.set('isNamed', true)
  const headers = {
    'Content-Type': 'application/json',
    'Cache-Control': 'no-store',
    'X-Request-Id': c.get('requestId'),
    'X-Content-Type-Options': 'nosniff',
  }
  return new Response(typeof body === 'string' ? body : streamOf(inTurn(body)), {
    status,
    headers: own === undefined ? headers : { ...headers, ...own },
  })
}

function inTurn(pieces: readonly string[]): () => Promise<string | undefined> {
  let next = 0
  return async () => pieces[next++]
}
