import type { ByteString } from '../core/bytes.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import type { Entry } from '../engine/storage.ts'
import type { Forest } from './forest.ts'
import type { Node } from './node.ts'
import type { Span } from './tree.ts'

/** Scans of at most this many entries never pause, because a pause would take longer than the scan. */
const FEW = 128

/** Waits for the next slice if the span may be long and the current slice is over. */
export function sliceFor(span: Span): Promise<void> | undefined {
  return span.limit > FEW && isSliceOver() ? nextSlice() : undefined
}

/** Adds entries to `out` until the slice is over. Returns the key to continue at, or undefined at the end of the span. */
export function collectSlice(forest: Forest, root: Node, span: Span, out: Entry[]): ByteString | undefined {
  return forest.collectInto(out, root, span, span.limit > FEW ? isSliceOver : undefined)
}

/**
 * Adds the rest of the span, from `next` on, in slices. A snapshot must hold the root, because others write meanwhile. `check` throws
 * if the scan must stop.
 */
export async function collectRest(
  forest: Forest,
  root: Node,
  span: Span,
  out: Entry[],
  next: ByteString,
  check: () => void,
): Promise<void> {
  for (let rest: ByteString | undefined = next; rest !== undefined; ) {
    await nextSlice()
    check()
    rest = collectSlice(forest, root, span.reverse ? { ...span, to: rest } : { ...span, from: rest }, out)
  }
}
