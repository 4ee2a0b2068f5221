import type { ByteString } from '../core/bytes.ts'
import { childIndex, Inner, type Node } from './node.ts'
import type { NodeKeeper } from './tree.ts'
import { writable } from './tree-changes.ts'

/**
 * Reclaims space: makes the remaining live nodes of sparse files dirty, so that the checkpoint writes them to another
 * file and the sparse files can be removed.
 */
export interface Relocation {
  readonly keeper: NodeKeeper
  /** The files to empty. */
  readonly files: ReadonlySet<number>
  /** Called after each parent of leaves. Returns true to pause. */
  readonly enough: () => boolean
  /** The key to continue from after a pause; undefined when done. */
  next: ByteString | undefined
}

/** Makes the nodes in those files dirty, from the key `from` on. Returns the new root. */
export function relocate(work: Relocation, root: Node, from: ByteString | undefined): Node {
  work.next = undefined
  return visit(work, root, from)
}

function visit(work: Relocation, node: Node, from: ByteString | undefined): Node {
  let target = node
  if (node instanceof Inner) {
    if (node.keys === undefined) work.keeper.load(node)
    const keys = node.keys as ByteString[]
    const count = node.children.length
    const first = from === undefined ? 0 : childIndex(keys, from)
    for (let i = first; i < count; i++) {
      const child = node.level > 1 ? node.child(i) : node.peek(i)
      const moved = visit(work, child, i === first ? from : undefined)
      if (moved !== child) {
        target = writable(work.keeper, target)
        ;(target as Inner).children[i] = moved
      }
      if (work.next !== undefined) break
      if (node.level > 1 && i + 1 < count && work.enough()) {
        work.next = keys[i]
        break
      }
    }
  }
  const lies = target === node && !node.dirty && work.files.has(node.file)
  return lies ? writable(work.keeper, node) : target
}
