import { allPieces, JsonPieces, PIECE_CHARS } from './json-pieces.ts'
import { streamOf } from './piece-stream.ts'
import type { ServerContext } from './server-env.ts'

/**
 * An answer in JSON that is not a `Response` yet. The headers that every answer has are put in when it becomes one: putting
 * them in afterwards makes Node build the headers a second time, which costs a tenth of an append.
 */
export class Reply {
  readonly status: number
  /** A long text is in pieces, which are sent one after the other. */
  readonly body: string | readonly string[]
  /** Beside those that every answer has. */
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

/** An answer in JSON that nobody keeps. For what is short: it is written in one go. */
export function json(
  value: unknown,
  status: number = 200,
  headers?: Readonly<Record<string, string>>,
): Reply {
  return new Reply(JSON.stringify(value), status, headers)
}

/** The same of what may be long, in slices: plain JSON, or a record with values in it. */
export async function largeJson(
  value: unknown,
  kind: 'value' | 'plain',
  status: number = 200,
  headers?: Readonly<Record<string, string>>,
): Promise<Reply> {
  const pieces = await allPieces(new JsonPieces(value, kind))
  return jsonPieces(pieces, status, headers)
}

/** The same, of what is JSON already. */
export function jsonText(
  text: string,
  status: number = 200,
  headers?: Readonly<Record<string, string>>,
): Reply {
  return new Reply(text, status, headers)
}

/** The same, in pieces of any length. */
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
