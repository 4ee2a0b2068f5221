import { hash } from 'node:crypto'
import { openNodeDisk } from '../../dist/embedded/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'

const ENTRIES = 1
const EVENTS = 2

export async function openStore(folder, { durability, cacheBytes }) {
  const storage = await openEmbedded({
    disk: openNodeDisk(folder, {}),
    durability,
    cacheBytes,
    clock: Date.now,
  })

  function put({ scope, key }, value) {
    return { op: 'put', scope, tag: ENTRIES, key, value }
  }

  function append(run, body, dedupeKey) {
    const bodyHash = hash('sha256', body, 'latin1')
    return { op: 'append', scope: run, tag: EVENTS, body, bodyHash, dedupe: { key: dedupeKey } }
  }

  return {
    at: (scope, key) => ({ scope, tag: ENTRIES, key }),
    valueOf: entry => entry?.value,
    put: (place, value) => storage.commit({ operations: [put(place, value)] }),
    putMany: pairs => storage.commit({ operations: pairs.map(([place, value]) => put(place, value)) }),
    removeMany: places =>
      storage.commit({
        operations: places.map(({ scope, key }) => ({ op: 'delete', scope, tag: ENTRIES, key })),
      }),
    get: ({ scope, key }) => storage.get(scope, ENTRIES, key),
    list: ({ scope, key }, limit) => storage.scan({ scope, tag: ENTRIES, from: key, limit }),
    async createCell(place, value) {
      return (await storage.commit({ operations: [put(place, value)] })).version
    },
    async cas(place, expected, value) {
      const done = await storage.update([place], ([found]) =>
        found?.version === expected
          ? { operations: [put(place, value)], result: true }
          : { operations: [], result: false },
      )
      return done.result ? done.version : 0
    },
    async append(run, body, dedupeKey) {
      return (await storage.commit({ operations: [append(run, body, dedupeKey)] })).appended[0]
    },
    async appendMany(run, events) {
      const operations = events.map(([body, dedupeKey]) => append(run, body, dedupeKey))
      return (await storage.commit({ operations })).appended
    },
    /** Nothing of one round's work may be left to run in another's. */
    settle: () => storage.checkpoint(),
    checkpoint: () => storage.checkpoint(),
    close: () => storage.close(),
  }
}
