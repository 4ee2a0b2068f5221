import { type Home, homeOf, Leaf, type Node } from './node.ts'
import type { NodeKeeper } from './tree.ts'

/**
 * Where a dropped tree lies on disk, node by node. Only inner nodes are read:
 * they say where the leaves are. Others may run in between; a dropped tree
 * doesn't change any more, but its nodes may be unloaded.
 */
export function* homesBelow(keeper: NodeKeeper, node: Node): Generator<Home, void, void> {
  yield homeOf(node)
  if (node instanceof Leaf) return
  if (!node.loaded) keeper.load(node)
  const count = node.children.length
  for (let i = 0; i < count; i++) {
    if (!node.loaded) keeper.load(node)
    yield* homesBelow(keeper, node.peek(i))
    keeper.trim()
  }
}
