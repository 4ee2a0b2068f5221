import { isSliceOver, nextSlice } from '../core/slices.ts'

const encoder = new TextEncoder()

/**
 * The body of an answer that is made piece by piece, each when its reader has taken the one before, and in slices. `next`
 * resolves with undefined at the end.
 */
export function streamOf(
  next: () => Promise<string | Uint8Array | undefined>,
  cancel?: () => Promise<unknown>,
): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (isSliceOver()) await nextSlice()
        let piece = await next()
        // A stream takes no empty piece, and would not ask for the next.
        while (piece?.length === 0) piece = await next()
        if (piece === undefined) controller.close()
        else controller.enqueue(typeof piece === 'string' ? encoder.encode(piece) : piece)
      },
      async cancel() {
        await cancel?.()
      },
    },
    // Nothing is made ahead of what is asked for.
    { highWaterMark: 0 },
  )
}
