import { PIECE_CHARS } from './json-pieces.ts'
import { streamOf } from './piece-stream.ts'

/**
 * Streams a JSON list while it is read from the store, as fast as the client reads, so that a list of any length needs little
 * memory. An error before the first item is thrown; a later one ends the answer early.
 */
export async function streamedJson(
  before: string,
  items: AsyncGenerator<unknown, void, void>,
  after: string,
  /** Runs the work on a piece, which may have to wait for its turn. */
  inTurn: (work: () => Promise<string>) => Promise<string> = work => work(),
): Promise<Response> {
  let next = await items.next()
  let text = `${before}[`
  let isOver = false
  const piece = async (): Promise<string> => {
    while (next.done !== true && text.length < PIECE_CHARS) {
      text += JSON.stringify(next.value)
      next = await items.next()
      if (next.done !== true) text += ','
    }
    isOver = next.done === true
    const given = isOver ? `${text}]${after}` : text
    text = ''
    return given
  }
  const body = streamOf(
    async () => (isOver ? undefined : await inTurn(piece)),
    () => items.return(),
  )
  return new Response(body, { headers: { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' } })
}
