/** Pieces of about this size leave at once. */
const PIECE_CHARS = 64 * 1024

/**
 * JSON whose list is written while it is read, as fast as the reader takes it: a list of any length needs the memory of
 * a few of its items. What fails before the first item is thrown; what fails later breaks the answer off.
 */
export async function streamedJson(
  before: string,
  items: AsyncGenerator<unknown, void, void>,
  after: string,
): Promise<Response> {
  const encoder = new TextEncoder()
  let next = await items.next()
  let text = `${before}[`
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (next.done !== true && text.length < PIECE_CHARS) {
          text += JSON.stringify(next.value)
          next = await items.next()
          if (next.done !== true) text += ','
        }
        if (next.done === true) text += `]${after}`
        controller.enqueue(encoder.encode(text))
        text = ''
        if (next.done === true) controller.close()
      },
      async cancel() {
        await items.return()
      },
    },
    // Nothing is read ahead of what is asked for.
    { highWaterMark: 0 },
  )
  return new Response(body, { headers: { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' } })
}
