import type { ByteString } from '../core/bytes.ts'
import { childIndex, Inner, type Node } from './node.ts'
import type { NodeKeeper } from './tree.ts'
import { writable } from './tree-changes.ts'

/**
 * Space is reclaimed by making the last live nodes of a sparse file dirty: the
 * checkpoint then writes them elsewhere, and the file can go.
 */
export interface Relocation {
  readonly keeper: NodeKeeper
  readonly files: ReadonlySet<number>
  /** Asked after each leaf's parent; true to stop for now. */
  readonly enough: () => boolean
  /** Where to go on after a stop. */
  next: ByteString | undefined
}

/** The root after all nodes from `from` on that lie in those files were made dirty. */
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
