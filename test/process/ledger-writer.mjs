// A writer of run events for tests that kill it. It works on numbered runs, several at once, each from its beginning.
// After a restart it sends the same events again, and the ledger detects the duplicates. It reports events and answers
// in a file, which survives the process. It can kill itself at places that a timer would rarely hit.
//
//   node ledger-writer.mjs <folder> <report> <settings>
import { randomUUID } from 'node:crypto'
import { openSync, writeSync } from 'node:fs'
import { Annals } from '../../dist/annals.js'
import { openNodeDisk } from '../../dist/disk/node-disk.js'
import { openEmbedded } from '../../dist/embedded/open.js'
import { Changes } from '../../dist/engine/changes.js'
import { Database } from '../../dist/engine/database.js'
import { feedTag, scopeOf, TAGS } from '../../dist/engine/keys.js'
import { createProducer, deriveIdempotencyKey } from '../../dist/index.js'

const [folder, reportPath, settingsJson] = process.argv.slice(2)
const { durability, dieIn, dieAt, cursor, firstRun } = JSON.parse(settingsJson)
const report = openSync(reportPath, 'a')
const LANES = 3
const PLAN = {
  tenantId: 'acme',
  projectId: 'shop',
  environmentId: 'test',
  planId: 'nightly',
  planVersion: '3',
}

const tell = (kind, facts) => writeSync(report, `${JSON.stringify({ kind, ...facts })}\n`)
const say = word => writeSync(1, `${word}\n`)

/** Kills the process when it passes `place` for the `dieAt`-th time. */
let passed = 0
function pass(place) {
  if (place === dieIn && ++passed === dieAt) process.kill(process.pid, 'SIGKILL')
}

/** The number of pending operations by place, which shows what a disk call belongs to. */
const underWay = new Map()
async function during(place, work) {
  underWay.set(place, (underWay.get(place) ?? 0) + 1)
  try {
    return await work()
  } finally {
    underWay.set(place, underWay.get(place) - 1)
  }
}
function passDisk() {
  for (const [place, count] of underWay) if (count > 0) pass(place)
}
function watched(target) {
  return new Proxy(target, {
    get(object, name) {
      const value = Reflect.get(object, name, object)
      if (typeof value !== 'function') return value
      return (...args) => {
        passDisk()
        const result = value.apply(object, args)
        passDisk()
        return name === 'open' ? watched(result) : result
      }
    },
  })
}

const storage = await during('opening', () =>
  openEmbedded({
    disk: watched(openNodeDisk(folder)),
    durability,
    walBytes: 60_000,
    prepareBytes: 8_192,
    cacheBytes: 100_000,
    fileBytes: 100_000,
    warn: () => undefined,
  }),
)
const database = new Database(storage)
const db = new Annals({ storage, database, guards: {} }, 'default')
const { ledger } = db
ledger.start()

async function appendTold(event, options) {
  tell('asked', { runId: event.runId, key: event.idempotencyKey, eventId: event.eventId })
  const answer = await during('append', () => ledger.appendEvent(event, options))
  pass('between append and answer')
  tell('answered', { runId: event.runId, key: event.idempotencyKey, answer })
  return answer
}
const store = { appendEvent: appendTold, fetchEvents: (...args) => ledger.fetchEvents(...args) }
const registry = {
  async claim(runId, key, eventId) {
    const claimed = await during('registry write', () => ledger.registry.claim(runId, key, eventId))
    pass('between registry and append')
    return claimed
  },
  adopt: (...args) => ledger.registry.adopt(...args),
}

/** Sends an invalid event without the producer, which would refuse it. */
async function sendInvalid(runId) {
  const event = { ...PLAN, runId, eventType: 'RunResumed', logicalAttemptId: 99, engineAttemptId: 1 }
  const idempotencyKey = deriveIdempotencyKey(event)
  const eventId = await registry.claim(runId, idempotencyKey, randomUUID())
  await appendTold({ ...event, eventId, idempotencyKey, emittedAt: new Date().toISOString() })
}

async function work(run) {
  const runId = `run-${run}`
  const isLeased = run % 2 === 0
  const { epoch } = isLeased
    ? await ledger.acquireLease(runId, { owner: `${process.pid}`, ttlMs: 60_000 })
    : {}
  const producer = createProducer({
    ...PLAN,
    store,
    registry,
    runId,
    replay: true,
    ...(isLeased ? { epoch } : {}),
  })
  await producer.runStarted({ run })
  await producer.stepStarted('fetch')
  if (run % 3 === 0) {
    await producer.stepFailed('fetch', new Error('no route'))
    await producer.stepStarted('fetch')
  }
  await producer.stepCompleted('fetch')
  if (!isLeased) await sendInvalid(runId)
  await producer.pause()
  await producer.resume()
  await producer.runCompleted()
  await during('projection', () => ledger.projectSnapshot(runId))
}

async function follow() {
  for await (const item of ledger.subscribeAll(cursor === undefined ? {} : { cursor })) {
    const { runId, runSeq } = item.record
    tell('delivered', { runId, runSeq, cursor: item.cursor })
  }
}
follow().catch(error => {
  throw error
})

/** Waits until the background projector has reached the end of the feed. */
const shared = scopeOf({ tenant: 'default', app: '_shared', agent: '_shared', run: '_shared' })
const changes = await Changes.of(database, { scope: shared, tag: TAGS.projection })
async function projected() {
  for (;;) {
    const seen = changes.count
    const [last] = await database.scan({ scope: shared, tag: feedTag(TAGS.ledger), reverse: true, limit: 1 })
    const progress = await database.get(shared, TAGS.projection, 'p')
    if (progress !== undefined && progress.value >= last.key) return
    await changes.beyond(seen, undefined)
  }
}

// The projector's timer does not keep the process alive, so this one does.
setInterval(() => undefined, 60_000)
for (let run = firstRun; ; run += LANES) {
  await Promise.all(Array.from({ length: LANES }, (_, lane) => work(run + lane)))
  say('worked')
  await during('background projection', projected)
  tell('finished', { run: run + LANES })
}
