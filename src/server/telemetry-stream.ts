import { PIECE_CHARS } from './json-pieces.ts'
import { streamOf } from './piece-stream.ts'

/**
 * JSON whose list is written while it is read, as fast as the reader takes it: a list of any length needs the memory of
 * a few of its items. What fails before the first item is thrown; what fails later breaks the answer off.
 */
export async function streamedJson(
  before: string,
  items: AsyncGenerator<unknown, void, void>,
  after: string,
  /** How the work on a piece is done: it may have to wait for its turn. */
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
