import { type Home, homeOf, Leaf, type Node } from './node.ts'
import type { NodeKeeper } from './tree.ts'

/**
 * Yields the home of each node of a dropped tree. It reads only inner nodes, because they have the places of the leaves. Other code
 * may run in between. A dropped tree does not change, but its nodes may be unloaded.
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
