import { hash } from 'node:crypto'
import { openNodeDisk } from '../../dist/disk/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'

const ENTRIES = 1
const EVENTS = 2

/** The storage engine alone: appends with a dedupe key, and many puts in one commit. */
export async function openStore(folder, { durability, cacheBytes }) {
  const storage = await openEmbedded({
    disk: openNodeDisk(folder, {}),
    durability,
    cacheBytes,
    clock: Date.now,
  })

  function put({ scope, key }, value) {
    return { op: 'put', scope, tag: ENTRIES, key, value: JSON.stringify(value) }
  }

  function append(run, payload, dedupeKey) {
    const body = JSON.stringify(payload)
    const bodyHash = hash('sha256', body, 'latin1')
    return { op: 'append', scope: run, tag: EVENTS, body, bodyHash, dedupe: { key: dedupeKey } }
  }

  return {
    at: (scope, key) => ({ scope, key }),
    put: (place, value) => storage.commit({ operations: [put(place, value)] }),
    putMany: pairs => storage.commit({ operations: pairs.map(([place, value]) => put(place, value)) }),
    removeMany: places =>
      storage.commit({
        operations: places.map(({ scope, key }) => ({ op: 'delete', scope, tag: ENTRIES, key })),
      }),
    async get({ scope, key }) {
      const found = await storage.get(scope, ENTRIES, key)
      return found === undefined ? undefined : JSON.parse(found.value)
    },
    async appendOnce(run, payload, dedupeKey) {
      return (await storage.commit({ operations: [append(run, payload, dedupeKey)] })).appended[0]
    },
    async appendManyOnce(run, events) {
      const operations = events.map(([payload, dedupeKey]) => append(run, payload, dedupeKey))
      return (await storage.commit({ operations })).appended
    },
    settle: () => storage.checkpoint(),
    checkpoint: () => storage.checkpoint(),
    close: () => storage.close(),
  }
}
