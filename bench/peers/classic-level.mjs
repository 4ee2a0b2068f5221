import { join } from 'node:path'
import { ClassicLevel } from 'classic-level'

/** LevelDB has no transactions with reads, so it takes no part in compare-and-swap and append. */
export async function openStore(folder, { durability }) {
  const db = new ClassicLevel(join(folder, 'level'), { compression: false, cacheSize: 64 << 20 })
  await db.open()
  return {
    ...storeOver(db, { sync: durability === 'durable' }),
    async settle() {},
    checkpoint: () => db.compactRange('\0', '\xff'),
    close: () => db.close(),
  }
}

/** The store's calls over any database of abstract-level. `options` are those of its writes. */
export function storeOver(db, options = {}) {
  return {
    level: db,
    at: (scope, key) => `${scope}/${key}`,
    put: (place, value) => db.put(place, JSON.stringify(value), options),
    putMany: pairs =>
      db.batch(
        pairs.map(([key, value]) => ({ type: 'put', key, value: JSON.stringify(value) })),
        options,
      ),
    removeMany: places =>
      db.batch(
        places.map(key => ({ type: 'del', key })),
        options,
      ),
    async get(place) {
      const found = await db.get(place)
      return found === undefined ? undefined : JSON.parse(found)
    },
    async list(place, limit) {
      const start = place.indexOf('/') + 1
      return (await db.keys(behind(place, limit)).all()).map(key => key.slice(start))
    },
    async entries(place, limit) {
      const start = place.indexOf('/') + 1
      const found = await db.iterator(behind(place, limit)).all()
      return found.map(([key, value]) => [key.slice(start), JSON.parse(value)])
    },
  }
}

/** The range of keys after the place, within its scope. */
function behind(place, limit) {
  return { gt: place, lt: `${place.slice(0, place.indexOf('/'))}0`, limit }
}
