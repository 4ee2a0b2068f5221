import { open } from '../../dist/index.js'

/** Annals through its public API. */
export async function openStore(folder, { durability, cacheBytes }) {
  const db = await open({ path: folder, durability, cacheBytes })
  const { kv, cells, events } = db
  const put = ({ run, key }, value) => kv.put(run, key, value)

  return {
    at: (run, key) => ({ run, key }),
    put,
    putMany: pairs => Promise.all(pairs.map(([place, value]) => put(place, value))),
    removeMany: places => Promise.all(places.map(({ run, key }) => kv.delete(run, key))),
    get: ({ run, key }) => kv.get(run, key),
    list: ({ run, key }, limit) => kv.list(run, { after: key, limit }),
    entries: ({ run, key }, limit) => kv.entries(run, { after: key, limit }),
    createCell: ({ run, key }, value) => cells.init(run, key, value),
    cas: ({ run, key }, expected, value) => cells.cas(run, key, expected, value),
    append: (run, type, payload) => events.append(run, type, payload),
    appendMany: (run, batch) => events.appendBatch(run, batch),
    read: (run, sequence) => events.read(run, sequence),
    readRange: (run, start, end) => events.readRange(run, start, end),
    /** Finishes the background work, so that no work of one round is done in another. */
    settle: () => db.checkpoint(),
    checkpoint: () => db.checkpoint(),
    close: () => db.close(),
  }
}
