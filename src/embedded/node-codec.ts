import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'
import { ENTRY_OVERHEAD_BYTES, type Inner, type Node, stub } from './node.ts'

/**
 * The format of nodes on disk. All numbers are little-endian.
 *
 *   leaf    u8 0, u32 count, then for each entry
 *             u32 value length (top bit: expires), u16 key length, f64 version, f64 time,
 *             [f64 expiresAt], key, value
 *   inner   u8 level, u32 count, then for each child
 *             u32 file, u32 offset, u32 length, i32 crc, u16 key length (0 for the first), key
 *
 * A node's checksum is stored in its parent, and a root's in the directory or the manifest. So an outdated or misplaced
 * block does not pass the check.
 */
const PREFIX_BYTES = 5
const EXPIRES = 0x8000_0000
const LENGTH_BITS = 0x7fff_ffff
const CHILD_BYTES = 18
/** Longer than any valid block. The largest value has 16 MiB. */
export const BLOCK_BYTES_MAX: number = 32 * 1024 * 1024

/** The length of the node's block on disk. */
export function blockBytes(node: Node): number {
  return PREFIX_BYTES + node.bytes
}

/** Writes a leaf block of these entries at `at`. */
export function writeLeaf(entries: readonly Entry[], into: Buffer, view: DataView, at: number): void {
  view.setUint8(at, 0)
  view.setUint32(at + 1, entries.length, true)
  let o = at + PREFIX_BYTES
  for (const entry of entries) o = writeEntry(entry, into, view, o)
}

function writeEntry(entry: Entry, into: Buffer, view: DataView, at: number): number {
  const { key, value, expiresAt } = entry
  view.setUint32(at, expiresAt === 0 ? value.length : (value.length | EXPIRES) >>> 0, true)
  view.setUint16(at + 4, key.length, true)
  view.setFloat64(at + 6, entry.version, true)
  view.setFloat64(at + 14, entry.time, true)
  let o = at + ENTRY_OVERHEAD_BYTES
  if (expiresAt !== 0) {
    view.setFloat64(o, expiresAt, true)
    o += 8
  }
  into.latin1Write(key, o)
  o += key.length
  into.latin1Write(value, o)
  return o + value.length
}

/**
 * Merges the changes of `delta` into the leaf block `from`, writes the result at `at` and returns its length; undefined
 * if `from` is not a valid leaf. Unchanged entries are copied as bytes, so the leaf is never decoded.
 */
export function mergeLeaf(
  from: Buffer,
  fromView: DataView,
  length: number,
  delta: ReadonlyMap<ByteString, Entry>,
  into: Buffer,
  view: DataView,
  at: number,
): number | undefined {
  if (length < PREFIX_BYTES || fromView.getUint8(0) !== 0) return undefined
  const changes = [...delta.values()].sort((a, b) => (a.key < b.key ? -1 : 1))
  let next = 0
  let count = 0
  let o = at + PREFIX_BYTES
  const writeChange = (): void => {
    o = writeEntry(changes[next++], into, view, o)
    count++
  }
  let f = PREFIX_BYTES
  for (let left = fromView.getUint32(1, true); left > 0; left--) {
    if (f + ENTRY_OVERHEAD_BYTES > length) return undefined
    const word = fromView.getUint32(f, true)
    const keyAt = f + ENTRY_OVERHEAD_BYTES + (word >= EXPIRES ? 8 : 0)
    const keyEnd = keyAt + fromView.getUint16(f + 4, true)
    const end = keyEnd + (word & LENGTH_BITS)
    if (end > length) return undefined
    const key = from.latin1Slice(keyAt, keyEnd)
    while (next < changes.length && changes[next].key < key) writeChange()
    if (next < changes.length && changes[next].key === key) writeChange()
    else {
      from.copy(into, o, f, end)
      o += end - f
      count++
    }
    f = end
  }
  if (f !== length) return undefined
  while (next < changes.length) writeChange()
  view.setUint8(at, 0)
  view.setUint32(at + 1, count, true)
  return o - at
}

/** Writes an inner node's block at `at`. Its children must have their places already. */
export function writeInner(node: Inner, into: Buffer, view: DataView, at: number): void {
  const keys = node.keys as ByteString[]
  view.setUint8(at, node.level)
  view.setUint32(at + 1, node.children.length, true)
  let o = at + PREFIX_BYTES
  for (let i = 0; i < node.children.length; i++) {
    const child = node.peek(i)
    const key = i === 0 ? '' : keys[i - 1]
    view.setUint32(o, child.file, true)
    view.setUint32(o + 4, child.offset, true)
    view.setUint32(o + 8, child.length, true)
    view.setInt32(o + 12, child.crc, true)
    view.setUint16(o + 16, key.length, true)
    into.latin1Write(key, o + CHILD_BYTES)
    o += CHILD_BYTES + key.length
  }
}

/** The entries of a leaf block; undefined if it is not a valid leaf. The strings are copies that don't retain the block. */
export function readLeaf(from: Buffer, view: DataView, length: number): Entry[] | undefined {
  if (length < PREFIX_BYTES || view.getUint8(0) !== 0) return undefined
  const count = view.getUint32(1, true)
  const entries: Entry[] = []
  let o = PREFIX_BYTES
  for (let i = 0; i < count; i++) {
    if (o + ENTRY_OVERHEAD_BYTES > length) return undefined
    const word = view.getUint32(o, true)
    const valueLength = word & LENGTH_BITS
    const keyLength = view.getUint16(o + 4, true)
    const version = view.getFloat64(o + 6, true)
    const time = view.getFloat64(o + 14, true)
    o += ENTRY_OVERHEAD_BYTES
    let expiresAt = 0
    if (word >= EXPIRES) {
      if (o + 8 > length) return undefined
      expiresAt = view.getFloat64(o, true)
      o += 8
    }
    if (o + keyLength + valueLength > length) return undefined
    const key = from.latin1Slice(o, o + keyLength)
    o += keyLength
    const value = from.latin1Slice(o, o + valueLength)
    o += valueLength
    entries.push({ key, value, version, time, expiresAt })
  }
  return o === length ? entries : undefined
}

/** Finds an entry in a leaf block, whose checksum the caller has verified. */
export function findInBlock(
  from: Buffer,
  view: DataView,
  length: number,
  key: ByteString,
): Entry | undefined {
  let o = PREFIX_BYTES
  while (o + ENTRY_OVERHEAD_BYTES <= length) {
    const word = view.getUint32(o, true)
    const keyAt = o + ENTRY_OVERHEAD_BYTES + (word >= EXPIRES ? 8 : 0)
    const keyEnd = keyAt + view.getUint16(o + 4, true)
    const end = keyEnd + (word & LENGTH_BITS)
    if (keyEnd - keyAt === key.length && hasBytes(from, keyAt, key)) {
      return {
        key: from.latin1Slice(keyAt, keyEnd),
        value: from.latin1Slice(keyEnd, end),
        version: view.getFloat64(o + 6, true),
        time: view.getFloat64(o + 14, true),
        expiresAt: word >= EXPIRES ? view.getFloat64(keyAt - 8, true) : 0,
      }
    }
    o = end
  }
  return undefined
}

/** Compares from the end, because keys of a leaf often share a prefix. */
function hasBytes(from: Buffer, at: number, key: ByteString): boolean {
  for (let i = key.length - 1; i >= 0; i--) if (from[at + i] !== key.charCodeAt(i)) return false
  return true
}

/** Sets a node's keys and the places of its children; false if the block is not a valid inner node of that level. */
export function readInner(node: Inner, from: Buffer, view: DataView, length: number): boolean {
  if (length < PREFIX_BYTES || view.getUint8(0) !== node.level) return false
  const count = view.getUint32(1, true)
  if (count === 0 || count * CHILD_BYTES > length) return false
  const keys: ByteString[] = []
  const places = new Uint32Array(count * 4)
  let o = PREFIX_BYTES
  for (let i = 0; i < count; i++) {
    if (o + CHILD_BYTES > length) return false
    const keyLength = view.getUint16(o + 16, true)
    if (o + CHILD_BYTES + keyLength > length) return false
    for (let word = 0; word < 4; word++) places[i * 4 + word] = view.getUint32(o + word * 4, true)
    if (i > 0) keys.push(from.latin1Slice(o + CHILD_BYTES, o + CHILD_BYTES + keyLength))
    o += CHILD_BYTES + keyLength
  }
  if (o !== length) return false
  node.keys = keys
  node.children = new Array(count).fill(undefined)
  node.places = places
  node.bytes = length - PREFIX_BYTES
  return true
}

const ADDRESS_BYTES = 17

/** Encodes the place of a root. It is the value of a directory entry. */
export function encodeAddress(root: Node): ByteString {
  const bytes = Buffer.allocUnsafe(ADDRESS_BYTES)
  bytes.writeUInt8(root.level, 0)
  bytes.writeUInt32LE(root.file, 1)
  bytes.writeUInt32LE(root.offset, 5)
  bytes.writeUInt32LE(root.length, 9)
  bytes.writeInt32LE(root.crc, 13)
  return bytes.latin1Slice()
}

/** The root at an encoded place, as a stub. */
export function decodeAddress(value: ByteString): Node {
  const bytes = Buffer.from(value, 'latin1')
  return stub(
    bytes.readUInt8(0),
    bytes.readUInt32LE(1),
    bytes.readUInt32LE(5),
    bytes.readUInt32LE(9),
    bytes.readInt32LE(13),
  )
}
