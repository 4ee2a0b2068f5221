const SHARDS = 256

/**
 * A map for very many keys. A `Map` doubles its table in one step, which blocks the event loop for some hundred milliseconds at
 * a million keys. Here, many small tables grow one at a time.
 */
export class ShardedMap<K extends string | number, V> {
  readonly #shards: (Map<K, V> | undefined)[] = new Array(SHARDS)

  get(key: K): V | undefined {
    return this.#shards[shardOf(key)]?.get(key)
  }

  has(key: K): boolean {
    return this.#shards[shardOf(key)]?.has(key) === true
  }

  set(key: K, value: V): void {
    const index = shardOf(key)
    let shard = this.#shards[index]
    if (shard === undefined) {
      shard = new Map()
      this.#shards[index] = shard
    }
    shard.set(key, value)
  }
}

/** Hashes the last 8 chars, because keys mostly differ near their ends. */
function shardOf(key: string | number): number {
  if (typeof key === 'number') return key & (SHARDS - 1)
  let hash = key.length
  for (let i = Math.max(0, key.length - 8); i < key.length; i++) {
    hash = Math.imul(hash, 31) + key.charCodeAt(i)
  }
  return (hash ^ (hash >>> 8)) & (SHARDS - 1)
}
