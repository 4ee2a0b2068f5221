import type { ByteString } from '../core/bytes.ts'
import { invariant } from '../core/invariant.ts'
import type { Entry } from '../engine/storage.ts'
import type { FileUse } from './data-files.ts'
import { type Forest, parseDirectoryKey } from './forest.ts'
import { fileName } from './format.ts'
import { type Inner, Leaf, type Node } from './node.ts'

/** The bytes that nodes refer to, by data file. */
type Reachable = Map<number, number>

/**
 * Reads and checks all stored data. Every block must pass its checksum, and every key must be where a search looks for
 * it. If no change waits for a checkpoint, the live bytes of each file must be those that can be reached. The caller may
 * pause at each `yield`, but nothing may be written meanwhile.
 */
export function* verifyForest(
  forest: Forest,
  files: ReadonlyMap<number, FileUse>,
): Generator<void, void, void> {
  const reachable: Reachable = new Map()
  for (const { scope, tag } of listTrees(forest)) {
    yield* verifyNode(forest, forest.tree(scope, tag).root, '', undefined, reachable)
    // A tree of one leaf has no `yield` of its own.
    yield
  }
  yield* verifyNode(forest, forest.directory, '', undefined, reachable)
  if (forest.dirtyTrees.size > 0 || forest.keepAll || forest.directory.dirty) return
  for (const { id, live } of files.values()) {
    const found = reachable.get(id) ?? 0
    invariant(found === live, `${fileName('D', id)} has ${found} live bytes, not ${live}`)
  }
}

/** The trees in the directory, which are those of the last checkpoint. */
function* listTrees(forest: Forest): Generator<{ scope: ByteString; tag: number }> {
  let from: ByteString | undefined
  for (;;) {
    const page = forest.collect(forest.directory, { from, to: undefined, reverse: false, limit: 256, now: 0 })
    for (const { key } of page) yield parseDirectoryKey(key)
    const last = page.at(-1)
    if (last === undefined) return
    from = `${last.key}\0`
  }
}

function* verifyNode(
  forest: Forest,
  node: Node,
  low: ByteString,
  high: ByteString | undefined,
  reachable: Reachable,
): Generator<void, void, void> {
  if (!node.dirty) reachable.set(node.file, (reachable.get(node.file) ?? 0) + node.length)
  if (node instanceof Leaf) {
    let before: Entry | undefined
    // Leaves bypass the cache, because keeping them takes longer than reading them.
    const entries = node.loaded ? (node.entries as Entry[]) : forest.nodes.passing(node, true)
    for (const entry of entries) {
      invariant(before === undefined || before.key < entry.key, 'the keys of a leaf are sorted')
      invariant(low <= entry.key && (high === undefined || entry.key < high), 'a key is in its leaf')
      before = entry
    }
    return
  }
  if (!node.loaded) forest.nodes.load(node)
  const keys = node.keys as ByteString[]
  for (let i = 0; i < keys.length + 1; i++) {
    yield* verifyNode(
      forest,
      childOf(forest, node, i),
      i === 0 ? low : keys[i - 1],
      i === keys.length ? high : keys[i],
      reachable,
    )
    forest.nodes.trim()
    yield
  }
}

/** The child of a node, which is loaded again if trimming has unloaded it. */
function childOf(forest: Forest, node: Inner, index: number): Node {
  if (!node.loaded) forest.nodes.load(node)
  return node.child(index)
}
