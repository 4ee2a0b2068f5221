// A writer for tests that kill it. It opens the folder, verifies the store, and commits until it is killed. It reports
// each commit before it is sent and after it is answered, in a file that survives the process.
//
//   node writer.mjs <folder> <report> <settings>
import { openSync, writeSync } from 'node:fs'
import { sha256 } from '../../dist/core/hash.js'
import { openNodeDisk } from '../../dist/disk/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'
import { TAGS } from '../../dist/engine/keys.js'
import { Random } from '../../dist/testing/random.js'

const [folder, reportPath, settingsJson] = process.argv.slice(2)
const { seed, durability, closeAfter, dieAtCall, dieWhile } = JSON.parse(settingsJson)
const random = new Random(seed)
const report = openSync(reportPath, 'a')

const tell = (kind, facts) => writeSync(report, `${JSON.stringify({ kind, ...facts })}\n`)
const say = word => writeSync(1, `${word}\n`)

/** Counts the disk calls in the phase `dieWhile`. A timer alone would rarely hit an opening or a closing. */
let phase = 'open'
let calls = 0
function count() {
  if (phase === dieWhile && ++calls === dieAtCall) process.kill(process.pid, 'SIGKILL')
}
function counted(target) {
  return new Proxy(target, {
    get(object, name) {
      const value = Reflect.get(object, name, object)
      if (typeof value !== 'function') return value
      return (...args) => {
        count()
        const result = value.apply(object, args)
        count()
        return name === 'open' ? counted(result) : result
      }
    },
  })
}

const disk = openNodeDisk(folder)
say('opening')
const store = await openEmbedded({
  disk: counted(disk),
  durability,
  // Small sizes, so that checkpoints, rotations, evictions and relocations are frequent.
  walBytes: 24_000,
  prepareBytes: 8_192,
  cacheBytes: 40_000,
  dirtyBytes: 200_000,
  garbageBytes: 60_000,
  fileBytes: 50_000,
  warn: () => undefined,
})
phase = 'serve'
await store.verify()
tell('opened', { version: store.stats().version, recovery: store.recovery })
say('opened')

const SCOPES = ['t:a:g:one', 't:a:g:two']

function operationsOf(commit) {
  const operations = []
  const size = random.chance(0.05) ? 3_000 : 120
  const count = 1 + random.below(4)
  for (let i = 0; i < count; i++) {
    const scope = random.pick(SCOPES)
    const key = `key-${random.below(250)}`
    const body = `${commit}-${i}-${'v'.repeat(random.below(size))}`
    const draw = random.next()
    if (draw < 0.5) operations.push({ op: 'put', scope, tag: TAGS.kv, key, value: body })
    else if (draw < 0.7) operations.push({ op: 'delete', scope, tag: TAGS.kv, key })
    else {
      // A third of the dedupe keys are likely duplicates, also of earlier processes.
      const dedupe = {
        key: random.chance(0.33) ? `d-${random.below(60)}` : `d-${commit}-${i}`,
        memo: `m-${commit}`,
      }
      operations.push({ op: 'append', scope, tag: TAGS.event, body, bodyHash: sha256(body), dedupe })
    }
  }
  // Drops are rare, so that scopes grow to trees with many nodes in several files.
  if (random.chance(0.01)) {
    const at = random.below(operations.length + 1)
    operations.splice(at, 0, { op: 'drop', scope: random.pick(SCOPES) })
  }
  operations.push({ op: 'put', scope: SCOPES[0], tag: TAGS.kv, key: 'last', value: commit })
  return operations
}

let issued = 0
let acknowledged = 0
async function commit() {
  const id = `${seed}/${issued++}`
  const operations = operationsOf(id)
  tell('asked', { id, operations })
  const { version, time, appended } = await store.commit({ operations })
  tell('answered', { id, version, time, appended })
  if (acknowledged++ === 0) say('committed')
}

await commit()
for (let step = 0; ; step++) {
  const crowd = []
  for (let i = random.chance(0.4) ? 1 : 2 + random.below(12); i > 0; i--) crowd.push(commit())
  if (random.chance(0.02)) crowd.push(store.checkpoint())
  if (step === closeAfter) {
    phase = 'close'
    say('closing')
    await Promise.all([store.close(), ...crowd])
    tell('closed', {})
    say('closed')
    break
  }
  await Promise.all(crowd)
}
