// Writes the golden files of the current format: node test/golden/make.mjs, after a build. Once released they are
// never written again, since every later version has to open what this one wrote; so it refuses to overwrite.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { sha256, sha256Hex } from '../../dist/core/hash.js'
import { FORMAT } from '../../dist/embedded/format.js'
import { openNodeDisk } from '../../dist/embedded/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'
import { dedupeTag, TAGS } from '../../dist/engine/keys.js'

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
/** Keys that begin alike for long: inner nodes fill up soon, so that there are several levels of them. */
const LONG = 'x'.repeat(900)
/** Every byte there is. */
const BYTES = String.fromCharCode(...Array.from({ length: 256 }, (_, i) => i))
const TREES = [RUN, OTHER].flatMap(scope =>
  [TAGS.kv, TAGS.state, TAGS.event, TAGS.ledger, dedupeTag(TAGS.event), dedupeTag(TAGS.ledger)].map(tag => ({
    scope,
    tag,
  })),
)

async function fill(store, { from, to, deep }) {
  for (let i = from; i < to; i++) {
    const operations = [
      put(RUN, `key-${i % 60}`, `value ${i}`),
      put(OTHER, `${BYTES.slice(i % 200, (i % 200) + 5)}`, BYTES),
    ]
    if (i % 3 === 0) operations.push(remove(RUN, `key-${(i * 7) % 60}`))
    if (i % 4 === 0) operations.push({ ...put(RUN, `state-${i % 9}`, `{"i":${i}}`), tag: TAGS.state })
    if (i % 5 === 0)
      operations.push(put(RUN, `stays-${i}`, 'until 2126', { expiresAt: START + 36_500 * DAY }))
    if (i % 7 === 0) operations.push(put(RUN, `goes-${i}`, 'for a day', { expiresAt: START + DAY }))
    operations.push(append(RUN, TAGS.event, `event ${i}`, { key: `once-${i}`, memo: `memo ${i}` }))
    // Said twice, and so answered with the first one's.
    if (i % 6 === 0)
      operations.push(append(RUN, TAGS.event, `event ${i} again`, { key: `once-${i}`, memo: 'ignored' }))
    if (i % 2 === 0)
      operations.push(append(OTHER, TAGS.ledger, `entry ${i}`, i % 4 === 0 ? { key: `l-${i}` } : undefined))
    if (deep) operations.push(put(OTHER, `${LONG}${String((i * 37) % 100).padStart(3, '0')}`, `deep ${i}`))
    await store.commit({ operations })
  }
}

/** All that a reader can see a week later. */
async function contentOf(store, time) {
  const trees = []
  for (const { scope, tag } of TREES) {
    const entries = []
    for (const { key, value, version, time: at, expiresAt } of await store.scan({ scope, tag })) {
      const long = value.length > 300
      entries.push({
        key,
        ...(long ? { bytes: value.length, sha256: sha256Hex(Buffer.from(value, 'latin1')) } : { value }),
        version,
        time: at,
        expiresAt,
      })
    }
    trees.push({ scope, tag, entries })
  }
  return { format: FORMAT, now: time, version: store.stats().version, trees }
}

async function make(name, deep, closes) {
  now = START
  const path = `${folder}/${name}`
  const options = { clock, walBytes: 10_000_000, fileBytes: 60_000, garbageBytes: 20_000 }
  const store = await openEmbedded({ disk: openNodeDisk(path), ...options })
  if (!deep) await store.commit({ operations: [put(OTHER, 'big', 'abcdefghij'.repeat(10_240))] })
  await fill(store, { from: 0, to: 60, deep })
  await store.checkpoint()
  await fill(store, { from: 60, to: 100, deep })
  await store.checkpoint()
  await fill(store, { from: 100, to: 110, deep: false })
  await store.checkpoint()
  await fill(store, { from: 110, to: 125, deep: false })
  now = START + 7 * DAY
  writeFileSync(`${folder}/${name}.json`, `${JSON.stringify(await contentOf(store, now), undefined, 1)}\n`)
  if (closes) await store.close()
}

await make('closed', true, true)
await make('killed', false, false)
// As a kill would: without closing.
process.exit()
