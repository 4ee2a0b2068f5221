import type { ByteString } from '../core/bytes.ts'
import type { Entry } from './storage.ts'

/** A change that is newer than the stored entries. Without an entry, the key was deleted or has expired. */
export interface NewerChange {
  readonly key: ByteString
  readonly entry: Entry | undefined
}

/** Lays newer changes of a range over its stored entries. `entries` are in the order of the range, `changes` in any order. */
export function overlaid(
  entries: readonly Entry[],
  changes: readonly NewerChange[],
  { reverse = false, limit }: { readonly reverse?: boolean | undefined; readonly limit: number },
): readonly Entry[] {
  const before = (a: ByteString, b: ByteString): boolean => (reverse ? a > b : a < b)
  const newer = [...changes].sort((a, b) => (before(a.key, b.key) ? -1 : 1))
  const out: Entry[] = []
  let next = 0
  const takeNewer = (): void => {
    const { entry } = newer[next++]
    if (entry !== undefined) out.push(entry)
  }
  for (const entry of entries) {
    while (out.length < limit && next < newer.length && before(newer[next].key, entry.key)) takeNewer()
    if (out.length >= limit) break
    if (next < newer.length && newer[next].key === entry.key) takeNewer()
    else out.push(entry)
  }
  while (out.length < limit && next < newer.length) takeNewer()
  return out
}
