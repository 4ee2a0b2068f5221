import { isSliceOver, nextSlice } from '../core/slices.ts'

const encoder = new TextEncoder()

/** A response body that is made piece by piece, as fast as the client reads. `next` resolves with undefined at the end. */
export function streamOf(
  next: () => Promise<string | Uint8Array | undefined>,
  cancel?: () => Promise<unknown>,
): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (isSliceOver()) await nextSlice()
        let piece = await next()
        // After an empty piece, a stream would not ask for the next one.
        while (piece?.length === 0) piece = await next()
        if (piece === undefined) controller.close()
        else controller.enqueue(typeof piece === 'string' ? encoder.encode(piece) : piece)
      },
      async cancel() {
        await cancel?.()
      },
    },
    // No piece is made before it is asked for.
    { highWaterMark: 0 },
  )
}
