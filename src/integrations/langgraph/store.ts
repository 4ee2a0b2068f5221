import {
  BaseStore,
  type GetOperation,
  type IndexConfig,
  InvalidNamespaceError,
  type Item,
  type ListNamespacesOperation,
  type Operation,
  type OperationResults,
  type PutOperation,
  type SearchItem,
  type SearchOperation,
} from '@langchain/langgraph-checkpoint'
import type { Annals, Namespace } from 'annals'
import { agentShared } from '../../index.ts'
import { framed, unframed } from './framing.ts'
import { matchesFilter, matchesPath } from './item-filter.ts'
import { itemKey, namespacePrefix, placeOf, subtreePrefix } from './item-keys.ts'
import { embedItems, embedQuery, encodeVectors, similarity } from './item-vectors.ts'
import { endOf } from './key-parts.ts'

/** Options of `AnnalsStore`. */
export interface AnnalsStoreOptions {
  /** The app in whose namespace the items are stored, `langgraph` by default. */
  readonly app?: string
  /** Embeds the texts of items, so that `search` with a `query` ranks items by similarity. */
  readonly index?: IndexConfig
}

const APP_DEFAULT = 'langgraph'
const AGENT = 'store'
const LIMIT_DEFAULT = 10
/** How many keys `listNamespaces` reads at a time, before it skips the rest of the last namespace. */
const PAGE = 100

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/**
 * A LangGraph store on Annals: items that several threads share, such as memories about a user. All puts of a batch are one
 * commit. Values must be JSON. Search with a query compares it with the vectors of all items below the namespace prefix.
 */
export class AnnalsStore extends BaseStore {
  readonly #db: Annals
  readonly #scope: Namespace
  readonly #index: IndexConfig | undefined

  /** Creates a store on an open database. Close the database yourself. */
  constructor(db: Annals, options: AnnalsStoreOptions = {}) {
    super()
    this.#db = db
    this.#scope = agentShared({ tenant: db.tenant, app: options.app ?? APP_DEFAULT, agent: AGENT })
    this.#index = options.index
  }

  /** Runs operations: first all reads, then all puts in one commit. Reads do not see the puts of their batch. */
  async batch<Op extends Operation[]>(operations: Op): Promise<OperationResults<Op>> {
    const puts = operations.filter(isPut)
    for (const { namespace } of puts) checkLabels(namespace)
    const results = await Promise.all(operations.map(operation => this.#read(operation)))
    await this.#putAll(puts)
    return results as OperationResults<Op>
  }

  async #read(operation: Operation): Promise<Item | null | SearchItem[] | string[][] | undefined> {
    if (isPut(operation)) return undefined
    if ('namespacePrefix' in operation) return this.#search(operation)
    return 'key' in operation ? this.#get(operation) : this.#namespaces(operation)
  }

  async #get({ namespace, key }: GetOperation): Promise<Item | null> {
    const name = itemKey('i', namespace, key)
    const bytes = await this.#db.kv.get<Uint8Array>(this.#scope, name)
    return bytes === undefined ? null : decodeItem(name, bytes)
  }

  async #putAll(operations: readonly PutOperation[]): Promise<void> {
    // Of several puts of the same item, the last one counts.
    const puts = [...new Map(operations.map(put => [itemKey('i', put.namespace, put.key), put])).values()]
    if (puts.length === 0) return
    const vectors = this.#index === undefined ? [] : await embedItems(this.#index, puts)
    const now = Date.now()
    const texts = puts.map(({ value }) => (value === null ? null : encoder.encode(JSON.stringify(value))))
    const names = puts.map(({ namespace, key }) => itemKey('i', namespace, key))
    const vectorNames =
      this.#index === undefined ? [] : puts.map(({ namespace, key }) => itemKey('x', namespace, key))
    await this.#db.kv.update<void, Uint8Array>(
      this.#scope,
      { keys: [...names, ...vectorNames] },
      ({ keys }) => {
        const written: { key: string; value: Uint8Array }[] = []
        const deletes: string[] = []
        for (const [i, key] of names.entries()) {
          const text = texts[i]
          const before = keys[i]
          if (text === null) deletes.push(key)
          else {
            const createdAt = before === undefined ? now : timesOf(before)[0]
            written.push({ key, value: framed(`${createdAt} ${now}`, text) })
          }
        }
        for (const [i, key] of vectorNames.entries()) {
          if (vectors[i].length === 0) deletes.push(key)
          else written.push({ key, value: encodeVectors(vectors[i]) })
        }
        return { puts: written, deletes, result: undefined }
      },
    )
  }

  async #search(operation: SearchOperation): Promise<SearchItem[]> {
    const { query, namespacePrefix: namespace, filter, offset = 0, limit = LIMIT_DEFAULT } = operation
    if (limit <= 0) return []
    if (query !== undefined && query !== '' && this.#index !== undefined) {
      return this.#searchSimilar(operation, await embedQuery(this.#index, query))
    }
    const found: SearchItem[] = []
    let skipped = 0
    const prefix = subtreePrefix('i', namespace)
    for await (const [key, bytes] of this.#db.kv.iterate<Uint8Array>(this.#scope, { prefix })) {
      const item = decodeItem(key, bytes)
      if (!matchesFilter(item.value, filter)) continue
      if (skipped++ < offset) continue
      found.push(item)
      if (found.length === limit) break
    }
    return found
  }

  /** Items with vectors, the most similar first, then items without. */
  async #searchSimilar(operation: SearchOperation, query: Float32Array): Promise<SearchItem[]> {
    const { namespacePrefix: namespace, filter, offset = 0, limit = LIMIT_DEFAULT } = operation
    const vectors = new Map<string, number>()
    const prefix = subtreePrefix('x', namespace)
    for await (const [key, bytes] of this.#db.kv.iterate<Uint8Array>(this.#scope, { prefix })) {
      vectors.set(key.slice(1), similarity(query, bytes))
    }
    const scored: SearchItem[] = []
    const others: SearchItem[] = []
    const items = this.#db.kv.iterate<Uint8Array>(this.#scope, { prefix: subtreePrefix('i', namespace) })
    for await (const [key, bytes] of items) {
      const item = decodeItem(key, bytes)
      if (!matchesFilter(item.value, filter)) continue
      const score = vectors.get(key.slice(1))
      if (score === undefined) others.push(item)
      else scored.push({ ...item, score })
    }
    scored.sort((a, b) => (b.score ?? 0) - (a.score ?? 0))
    return [...scored, ...others].slice(offset, offset + limit)
  }

  async #namespaces(operation: ListNamespacesOperation): Promise<string[][]> {
    const { matchConditions = [], maxDepth, limit, offset } = operation
    const start = matchConditions.find(({ matchType }) => matchType === 'prefix')?.path ?? []
    const wildcard = start.indexOf('*')
    const prefix = subtreePrefix('i', wildcard < 0 ? start : start.slice(0, wildcard))
    const found = new Map<string, string[]>()
    let gte = prefix
    for (;;) {
      const keys = await this.#db.kv.list(this.#scope, { prefix, gte, limit: PAGE })
      for (const key of keys) {
        const { namespace } = placeOf(key)
        if (!matchConditions.every(condition => matchesPath(namespace, condition))) continue
        const shown = namespace.slice(0, maxDepth)
        found.set(namespacePrefix('i', shown), shown)
      }
      if (keys.length < PAGE) break
      gte = endOf(namespacePrefix('i', placeOf(keys[keys.length - 1]).namespace))
    }
    return [...found.values()].slice(offset, offset + limit)
  }
}

function isPut(operation: Operation): operation is PutOperation {
  return 'value' in operation
}

function checkLabels(namespace: readonly unknown[]): void {
  if (namespace.every(label => typeof label === 'string' && label !== '')) return
  throw new InvalidNamespaceError('the labels of a namespace must be non-empty strings')
}

function decodeItem(name: string, bytes: Uint8Array): Item {
  const [line, text] = unframed(bytes)
  const [createdAt, updatedAt] = line.split(' ').map(Number)
  const value = JSON.parse(decoder.decode(text))
  return { ...placeOf(name), value, createdAt: new Date(createdAt), updatedAt: new Date(updatedAt) }
}

function timesOf(bytes: Uint8Array): readonly number[] {
  return unframed(bytes)[0].split(' ').map(Number)
}
