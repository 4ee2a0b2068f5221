// Writes the golden files of the current format: `node test/golden/make.mjs`, after a build. Every later version must
// open the files of a released one, so released files never change, and this program refuses to overwrite them.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { sha256, sha256Hex } from '../../dist/core/hash.js'
import { encodeValue } from '../../dist/core/value.js'
import { openNodeDisk } from '../../dist/disk/node-disk.js'
import { FORMAT } from '../../dist/embedded/format.js'
import { openEmbedded } from '../../dist/embedded/open.js'
import { dedupeTag, headTag, TAGS } from '../../dist/engine/keys.js'

const folder = fileURLToPath(new URL(`format-${FORMAT}`, import.meta.url))
if (existsSync(folder)) {
  console.error(`${folder} is there already: golden files are never overwritten`)
  process.exit(1)
}
mkdirSync(folder)

const START = 1_767_225_600_000
const DAY = 86_400_000
let now = START
const clock = () => now++

const put = (scope, key, value, more = {}) => ({ op: 'put', scope, tag: TAGS.kv, key, value, ...more })
const remove = (scope, key) => ({ op: 'delete', scope, tag: TAGS.kv, key })
const append = (scope, tag, body, dedupe) => ({
  op: 'append',
  scope,
  tag,
  body,
  bodyHash: sha256(body),
  dedupe,
})

const RUN = 'tenant:default:default:run-1'
const OTHER = 'tenant:default:default:run%3A2'
/** Dropped twice, once in the trees and once in the log. */
const DROPPED = 'tenant:default:default:run-3'
/** A long common prefix of keys, which fills inner nodes quickly, so that the tree has several levels. */
const LONG = 'x'.repeat(2_000)
/** All 256 bytes. */
const BYTES = String.fromCharCode(...Array.from({ length: 256 }, (_, i) => i))
/** A value with bytes, and with members that are not in the order of their names. */
const VALUE = encodeValue({ z: Uint8Array.from(BYTES, char => char.charCodeAt(0)), a: [1n, 'é', -0] })
const TREES = [RUN, OTHER, DROPPED].flatMap(scope =>
  [
    TAGS.kv,
    TAGS.state,
    TAGS.trace,
    TAGS.event,
    TAGS.ledger,
    dedupeTag(TAGS.event),
    dedupeTag(TAGS.ledger),
    headTag(TAGS.event),
    headTag(TAGS.ledger),
  ].map(tag => ({
    scope,
    tag,
  })),
)

async function fill(store, { from, to, deep }) {
  for (let i = from; i < to; i++) {
    const operations = [
      put(RUN, `key-${i % 60}`, `value ${i}`),
      put(OTHER, BYTES.slice(i % 10, (i % 10) + 5), BYTES),
    ]
    if (i % 3 === 0) operations.push(remove(RUN, `key-${(i * 7) % 60}`))
    if (i === 20) operations.push(put(RUN, 'encoded', VALUE))
    if (i % 4 === 0) operations.push({ ...put(RUN, `state-${i % 9}`, `{"i":${i}}`), tag: TAGS.state })
    if (i % 5 === 0)
      operations.push(put(RUN, `stays-${i}`, 'until 2126', { expiresAt: START + 36_500 * DAY }))
    if (i % 7 === 0) operations.push(put(RUN, `goes-${i}`, 'for a day', { expiresAt: START + DAY }))
    operations.push(append(RUN, TAGS.event, `event ${i}`, { key: `once-${i}`, memo: `memo ${i}` }))
    // A duplicate, which is answered with the first event's sequence.
    if (i % 6 === 0)
      operations.push(append(RUN, TAGS.event, `event ${i} again`, { key: `once-${i}`, memo: 'ignored' }))
    if (i % 2 === 0)
      operations.push(append(OTHER, TAGS.ledger, `entry ${i}`, i % 4 === 0 ? { key: `l-${i}` } : undefined))
    if (deep && i < 20) {
      const key = `${LONG}${String((i * 7) % 20).padStart(3, '0')}`
      operations.push({ ...put(OTHER, key, `deep ${i}`), tag: TAGS.trace })
    }
    operations.push(put(DROPPED, `key-${i}`, `value ${i}`), append(DROPPED, TAGS.event, `event ${i}`))
    if (i === 35 || i === 55) operations.push({ op: 'drop', scope: DROPPED })
    await store.commit({ operations })
  }
}

/** Short printable text as it is, other text as its length and the beginning of its hash. */
function told(bytes) {
  if (bytes.length <= 40 && /^[ -~]*$/.test(bytes)) return bytes
  return { bytes: bytes.length, sha256: sha256Hex(Buffer.from(bytes, 'latin1')).slice(0, 16) }
}

/** All data that a reader can see a week later. */
async function contentOf(store, time) {
  const trees = []
  for (const { scope, tag } of TREES) {
    const entries = await store.scan({ scope, tag })
    const rows = entries.map(entry => [
      told(entry.key),
      told(entry.value),
      entry.version,
      entry.time,
      entry.expiresAt,
    ])
    trees.push({ scope, tag, entries: rows })
  }
  const first = { format: FORMAT, now: time, version: store.stats().version }
  return [first, ...trees].map(line => `${JSON.stringify(line)}\n`).join('')
}

async function make(name, deep, closes) {
  now = START
  const path = `${folder}/${name}`
  const options = {
    clock,
    walBytes: 10_000_000,
    prepareBytes: 4_096,
    fileBytes: 60_000,
    garbageBytes: 20_000,
  }
  const store = await openEmbedded({ disk: openNodeDisk(path), ...options })
  if (!deep)
    await store.commit({
      operations: [{ ...put(OTHER, 'big', 'abcdefghij'.repeat(10_000)), tag: TAGS.state }],
    })
  await fill(store, { from: 0, to: 30, deep })
  await store.checkpoint()
  await fill(store, { from: 30, to: 45, deep: false })
  await store.checkpoint()
  // Waits for the prepared segment, so that the segment numbers do not depend on the speed of the disk.
  await new Promise(resolve => setTimeout(resolve, 200))
  await fill(store, { from: 45, to: 50, deep: false })
  await store.checkpoint()
  await fill(store, { from: 50, to: 60, deep: false })
  now = START + 7 * DAY
  writeFileSync(`${folder}/${name}.jsonl`, await contentOf(store, now))
  if (closes) await store.close()
}

await make('closed', true, true)
await make('killed', false, false)
// Exits without closing, like a killed process.
process.exit()
