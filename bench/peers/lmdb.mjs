import { join } from 'node:path'
import { open } from 'lmdb'
import { bodyOf, link, NO_HASH } from './chain.mjs'

/**
 * lmdb with its best settings. `overlappingSync` is off, because with it lmdb-js answers before the data are on the device.
 * With one write in flight, a synchronous write is up to five times as fast as a batched one, because it needs no second
 * thread. So lmdb uses whichever is faster. Versions cost a tenth of a put, so only compare-and-swap uses them.
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
  const opened = []
  // Opened on first use, so that no workload pays for databases that only another one needs.
  const lazily = openLog => {
    let log
    return () => {
      if (log === undefined) {
        log = openLog()
        opened.push(log)
      }
      return log
    }
  }
  const events = lazily(() => openEvents(join(folder, 'events'), environment, options))
  const deduped = lazily(() => openDedupedEvents(join(folder, 'deduped'), environment, options))

  return {
    at: (scope, key) => `${scope}/${key}`,
    put: alone
      ? async (place, value) => entries.putSync(place, JSON.stringify(value))
      : (place, value) => entries.put(place, JSON.stringify(value)),
    async putMany(pairs) {
      await transact(entries, alone, () => {
        for (const [place, value] of pairs) void entries.put(place, JSON.stringify(value))
      })
    },
    async removeMany(places) {
      await transact(entries, alone, () => {
        for (const place of places) void entries.remove(place)
      })
    },
    async get(place) {
      const found = entries.get(place)
      return found === undefined ? undefined : JSON.parse(found)
    },
    async list(place, limit) {
      const start = place.indexOf('/') + 1
      return entries.getKeys(behind(place, limit)).map(key => key.slice(start)).asArray
    },
    async entries(place, limit) {
      const start = place.indexOf('/') + 1
      return entries
        .getRange(behind(place, limit))
        .map(({ key, value }) => [key.slice(start), JSON.parse(value)]).asArray
    },
    ...(versions ? casOf(entries) : {}),
    append: (run, type, payload) => events().append(run, type, payload),
    appendMany: (run, batch) => events().appendMany(run, batch),
    read: (run, sequence) => events().read(run, sequence),
    readRange: (run, start, end) => events().readRange(run, start, end),
    appendOnce: (run, payload, dedupeKey) => deduped().append(run, payload, dedupeKey),
    appendManyOnce: (run, batch) => deduped().appendMany(run, batch),
    settle: () => entries.flushed,
    checkpoint: () => entries.flushed,
    async close() {
      await entries.close()
      for (const log of opened) await log.close()
    },
  }
}

function transact(database, alone, step) {
  return alone ? database.transactionSync(step) : database.transaction(step)
}

/** The range of keys after the place, within its scope. */
function behind(place, limit) {
  return { start: place, exclusiveStart: true, end: `${place.slice(0, place.indexOf('/'))}0`, limit }
}

function casOf(entries) {
  return {
    async createCell(place, value) {
      await entries.put(place, JSON.stringify(value), 1)
      return 1
    },
    async cas(place, expected, value) {
      if (entries.putSync(place, JSON.stringify(value), expected + 1, expected)) return expected + 1
      throw new Error('the cell has another version')
    },
  }
}

/** Events as JSON, and the head of each run: two databases in one environment, written in one transaction. */
function openEvents(path, environment, { inFlight = 1 }) {
  const root = open({ path, maxDbs: 2, ...environment })
  const events = root.openDB('events', { encoding: 'string' })
  const heads = root.openDB('heads', { encoding: 'string' })
  const alone = inFlight === 1

  function appendStep(run, type, payload) {
    const { sequence: last, hash: prevHash } = parseHead(heads.get(run))
    const sequence = last + 1
    const timestamp = Date.now()
    const text = JSON.stringify(payload)
    const hash = link(prevHash, sequence, timestamp, bodyOf(run, type, text))
    // The payload is encoded once, for the hash and for the record. The other fields need no escapes.
    const event = `{"sequence":${sequence},"type":"${type}","payload":${text},"timestamp":${timestamp},"prevHash":"${prevHash}","hash":"${hash}"}`
    void events.put(eventKey(run, sequence), event)
    void heads.put(run, `${hash}${sequence}`)
    return { sequence, hash }
  }

  return {
    async append(run, type, payload) {
      return transact(root, alone, () => appendStep(run, type, payload))
    },
    async appendMany(run, batch) {
      return transact(root, alone, () => batch.map(({ type, payload }) => appendStep(run, type, payload)))
    },
    async read(run, sequence) {
      const found = events.get(eventKey(run, sequence))
      return found === undefined ? undefined : JSON.parse(found)
    },
    async readRange(run, start, end) {
      return events
        .getRange({ start: eventKey(run, start), end: eventKey(run, end) })
        .map(({ value }) => JSON.parse(value)).asArray
    },
    close: () => root.close(),
  }
}

/** Events, dedupe keys, and the head of each run: three databases in one environment, written in one transaction. */
function openDedupedEvents(path, environment, { inFlight = 1, readFirst = false }) {
  const root = open({ path, maxDbs: 3, ...environment })
  const events = root.openDB('events', { encoding: 'string' })
  const dedupes = root.openDB('dedupes', { encoding: 'string' })
  const heads = root.openDB('heads', { encoding: 'string' })
  const alone = inFlight === 1

  function known(run, dedupeKey) {
    const text = dedupes.get(`${run}/${dedupeKey}`)
    return text === undefined ? undefined : { ...parseHead(text), duplicate: true }
  }

  function appendStep(run, payload, dedupeKey) {
    const body = JSON.stringify(payload)
    const duplicate = known(run, dedupeKey)
    if (duplicate) return duplicate
    const last = parseHead(heads.get(run))
    const sequence = last.sequence + 1
    const time = Date.now()
    const hash = link(last.hash, sequence, time, body)
    const newHead = `${hash}${sequence}`
    void events.put(eventKey(run, sequence), `${hash}${time}${body}`)
    void dedupes.put(`${run}/${dedupeKey}`, newHead)
    void heads.put(run, newHead)
    return { sequence, hash, duplicate: false }
  }

  return {
    async append(run, payload, dedupeKey) {
      const duplicate = readFirst ? known(run, dedupeKey) : undefined
      return duplicate ?? transact(root, alone, () => appendStep(run, payload, dedupeKey))
    },
    async appendMany(run, batch) {
      return transact(root, alone, () =>
        batch.map(([payload, dedupeKey]) => appendStep(run, payload, dedupeKey)),
      )
    },
    close: () => root.close(),
  }
}

function eventKey(run, sequence) {
  return `${run}/${String(sequence).padStart(10, '0')}`
}

function parseHead(text) {
  if (text === undefined) return { hash: NO_HASH, sequence: -1 }
  return { hash: text.slice(0, 64), sequence: Number(text.slice(64)) }
}
