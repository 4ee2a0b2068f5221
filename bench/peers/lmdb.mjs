import { join } from 'node:path'
import { open } from 'lmdb'
import { link, NO_HASH } from './chain.mjs'

/**
 * `overlappingSync` is off: with it, lmdb-js answers before the data are on the
 * device. Alone in flight, a synchronous write is up to five times as fast as a
 * batched one (no second thread), so lmdb gets whichever suits it. Versions cost
 * a tenth of a put, so only a compare-and-swap has them.
 */
export async function openStore(folder, options) {
  const { inFlight = 1, versions = false, writeMap = false } = options
  const environment = {
    noSync: options.durability !== 'durable',
    overlappingSync: false,
    encoding: 'string',
    useWritemap: writeMap,
  }
  const entries = open({ path: join(folder, 'entries'), useVersions: versions, ...environment })
  const alone = inFlight === 1
  let log
  const events = () => {
    log ??= openEvents(join(folder, 'events'), environment, options)
    return log
  }

  return {
    at: (scope, key) => `${scope}/${key}`,
    valueOf: value => value,
    put: alone
      ? async (place, value) => entries.putSync(place, value)
      : (place, value) => entries.put(place, value),
    async putMany(pairs) {
      await transact(entries, alone, () => {
        for (const [place, value] of pairs) void entries.put(place, value)
      })
    },
    async removeMany(places) {
      await transact(entries, alone, () => {
        for (const place of places) void entries.remove(place)
      })
    },
    async get(place) {
      return entries.get(place)
    },
    async list(place, limit) {
      return entries.getRange({ start: place, end: `${place.slice(0, place.indexOf('/'))}0`, limit }).asArray
    },
    ...(versions ? casOf(entries) : {}),
    append: (run, body, dedupeKey) => events().append(run, body, dedupeKey),
    appendMany: (run, batch) => events().appendMany(run, batch),
    settle: () => entries.flushed,
    checkpoint: () => entries.flushed,
    async close() {
      await entries.close()
      await log?.close()
    },
  }
}

function transact(database, alone, step) {
  return alone ? database.transactionSync(step) : database.transaction(step)
}

function casOf(entries) {
  return {
    async createCell(place, value) {
      await entries.put(place, value, 1)
      return 1
    },
    async cas(place, expected, value) {
      return entries.putSync(place, value, expected + 1, expected) ? expected + 1 : 0
    },
  }
}

/** Three databases in one environment, written in one transaction: events, dedupe keys, each run's head. */
function openEvents(path, environment, { inFlight = 1, readFirst = false }) {
  const root = open({ path, maxDbs: 3, ...environment })
  const events = root.openDB('events', { encoding: 'string' })
  const dedupes = root.openDB('dedupes', { encoding: 'string' })
  const heads = root.openDB('heads', { encoding: 'string' })
  const alone = inFlight === 1

  function known(run, dedupeKey) {
    const text = dedupes.get(`${run}/${dedupeKey}`)
    return text === undefined ? undefined : { ...parseHead(text), duplicate: true }
  }

  function appendStep(run, body, dedupeKey) {
    const duplicate = known(run, dedupeKey)
    if (duplicate) return duplicate
    const head = heads.get(run)
    const last = head === undefined ? { sequence: -1, hash: NO_HASH } : parseHead(head)
    const sequence = last.sequence + 1
    const time = Date.now()
    const hash = link(last.hash, sequence, time, body)
    const newHead = `${hash}${sequence}`
    void events.put(`${run}/${String(sequence).padStart(10, '0')}`, `${hash}${time}${body}`)
    void dedupes.put(`${run}/${dedupeKey}`, newHead)
    void heads.put(run, newHead)
    return { sequence, hash, duplicate: false }
  }

  return {
    async append(run, body, dedupeKey) {
      const duplicate = readFirst ? known(run, dedupeKey) : undefined
      return duplicate ?? transact(root, alone, () => appendStep(run, body, dedupeKey))
    },
    async appendMany(run, batch) {
      return transact(root, alone, () => batch.map(([body, dedupeKey]) => appendStep(run, body, dedupeKey)))
    },
    close: () => root.close(),
  }
}

function parseHead(text) {
  return { hash: text.slice(0, 64), sequence: Number(text.slice(64)) }
}
