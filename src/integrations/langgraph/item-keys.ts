import { escaped, unescaped } from './key-parts.ts'

/**
 * The keys of a store. `/` ends each label of a namespace, and is escaped within labels and keys. An empty label, which no
 * namespace has, ends the namespace, so that the items of a namespace and of those below it share a prefix.
 *
 * | key | value |
 * |---|---|
 * | `i/<label>/<label>//<key>` | an item |
 * | `x/<label>/<label>//<key>` | the embedding vectors of an item |
 */
export type ItemKind = 'i' | 'x'

/** The prefix of the keys of a namespace and all namespaces below it. */
export function subtreePrefix(kind: ItemKind, namespace: readonly string[]): string {
  return `${kind}/${namespace.map(label => `${escaped(label)}/`).join('')}`
}

/** The prefix of the keys of a namespace alone. */
export function namespacePrefix(kind: ItemKind, namespace: readonly string[]): string {
  return `${subtreePrefix(kind, namespace)}/`
}

export function itemKey(kind: ItemKind, namespace: readonly string[], key: string): string {
  return namespacePrefix(kind, namespace) + escaped(key)
}

/** The inverse of `itemKey`. */
export function placeOf(text: string): { readonly namespace: string[]; readonly key: string } {
  const parts = text.split('/').map(unescaped)
  return { namespace: parts.slice(1, -2), key: parts[parts.length - 1] }
}
