import { join } from 'node:path'
import { ClassicLevel } from 'classic-level'

/** LevelDB has no transactions over reads: compare-and-swap and append are not for it. */
export async function openStore(folder, { durability }) {
  const db = new ClassicLevel(join(folder, 'level'), { compression: false, cacheSize: 64 << 20 })
  await db.open()
  const options = { sync: durability === 'durable' }
  return {
    at: (scope, key) => `${scope}/${key}`,
    valueOf: value => value,
    put: (place, value) => db.put(place, value, options),
    putMany: pairs =>
      db.batch(
        pairs.map(([key, value]) => ({ type: 'put', key, value })),
        options,
      ),
    removeMany: places =>
      db.batch(
        places.map(key => ({ type: 'del', key })),
        options,
      ),
    get: place => db.get(place),
    list: (place, limit) =>
      db.iterator({ gte: place, lt: `${place.slice(0, place.indexOf('/'))}0`, limit }).all(),
    async settle() {},
    checkpoint: () => db.compactRange('\0', '\xff'),
    close: () => db.close(),
  }
}
