// Writes a lot of data and prints the resources that it took as one line of JSON. Memory can only be measured in a
// separate process.
//
//   node bulk.mjs <folder> <settings>
//
// The setting `task` is 'grow', which writes `count` entries and reads them back at random, or 'churn', which
// overwrites `count` entries ten times and deletes them all.
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { openNodeDisk } from '../../dist/disk/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'
import { TAGS } from '../../dist/engine/keys.js'
import { Random } from '../../dist/testing/random.js'

const [folder, settingsJson] = process.argv.slice(2)
const { task, count, valueBytes, cacheBytes, seed } = JSON.parse(settingsJson)
const random = new Random(seed)
const CROWD = 64

const started = performance.now()
const rssAtStart = process.memoryUsage.rss()
let store = await openEmbedded({ disk: openNodeDisk(folder), durability: 'relaxed', cacheBytes })

const keyOf = n => `key-${String(n).padStart(8, '0')}`
const valueFor = (n, round) => `${n}/${round}/`.padEnd(valueBytes, 'abcdefghij')
const put = (n, round) => ({ op: 'put', scope: 's', tag: TAGS.kv, key: keyOf(n), value: valueFor(n, round) })
const remove = n => ({ op: 'delete', scope: 's', tag: TAGS.kv, key: keyOf(n) })

async function commitAll(operationOf) {
  for (let n = 0; n < count; n += CROWD) {
    const crowd = []
    for (let i = n; i < Math.min(count, n + CROWD); i++)
      crowd.push(store.commit({ operations: [operationOf(i)] }))
    await Promise.all(crowd)
  }
}

async function check(n, round) {
  const entry = await store.get('s', TAGS.kv, keyOf(n))
  if (entry?.value !== valueFor(n, round)) throw new Error(`entry ${n} is wrong`)
}

function folderBytes() {
  return readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0)
}

const facts = {}
if (task === 'grow') {
  await commitAll(n => put(n, 0))
  facts.rssWritten = process.memoryUsage.rss()
  for (let i = 0; i < count / 4; i++) await check(random.below(count), 0)
  let scanned = 0
  for (let from = ''; ; ) {
    const page = await store.scan({ scope: 's', tag: TAGS.kv, from, limit: 500 })
    if (page.length === 0) break
    scanned += page.length
    from = `${page.at(-1).key}\0`
  }
  if (scanned !== count) throw new Error(`a scan found ${scanned}`)
} else {
  for (let round = 0; round < 10; round++) await commitAll(n => put(n, round))
  await store.checkpoint()
  await store.checkpoint()
  facts.overwrittenBytes = folderBytes()
  for (let i = 0; i < 1_000; i++) await check(random.below(count), 9)
  await store.verify()
  await commitAll(remove)
  for (let i = 0; i < 3; i++) await store.checkpoint()
  facts.deletedBytes = folderBytes()
  if ((await store.scan({ scope: 's', tag: TAGS.kv, limit: 1 })).length > 0)
    throw new Error('not all is deleted')
  await store.close()
  store = await openEmbedded({ disk: openNodeDisk(folder), cacheBytes })
  await store.verify()
}
facts.stats = store.stats()
await store.close()
facts.folderBytes = folderBytes()
facts.rssAtStart = rssAtStart
// The maximum over the life of the process in bytes. The system reports KiB.
facts.rssMax = process.resourceUsage().maxRSS * 1024
facts.ms = Math.round(performance.now() - started)
process.stdout.write(`${JSON.stringify(facts)}\n`)
