import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, test } from 'vitest'
import {
  type Annals,
  type AppendResult,
  type FetchOptions,
  open,
  openFileRegistry,
  type RunEventRecord,
  type RunEventWrite,
  type RunSnapshot,
  reduce,
} from '../../src/index.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { rounds } from '../rounds.ts'

/** Failure matrix: "process killed at any operation" and "duplicate append", for run events, with a real SIGKILL. */
const WRITER = fileURLToPath(new URL('ledger-writer.mjs', import.meta.url))
const PRODUCER = fileURLToPath(new URL('ledger-producer.mjs', import.meta.url))
/** Twice the number of deaths, so that each of them hits a durable and a relaxed writer. */
const CYCLES = rounds(16, 96)

/** The places at which a writer is killed. It kills itself at a random pass, up to `timesMax`. With 0 the test kills it. */
const DEATHS = [
  { place: 'between registry and append', timesMax: 12 },
  { place: 'between append and answer', timesMax: 12 },
  { place: 'append', timesMax: 30 },
  { place: 'registry write', timesMax: 30 },
  { place: 'projection', timesMax: 8 },
  { place: 'background projection', timesMax: 8 },
  { place: 'anywhere', timesMax: 0 },
  { place: 'opening', timesMax: 24 },
] as const

const root = mkdtempSync(join(tmpdir(), 'annals-ledger-kill-'))
const children = new Set<ChildProcess>()
afterAll(() => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(root, { recursive: true, force: true })
})

function endOf(child: ChildProcess): Promise<NodeJS.Signals | null> {
  children.add(child)
  const end = once(child, 'exit').then(([code, signal]: (number | NodeJS.Signals | null)[]) => {
    children.delete(child)
    if (signal === null && code !== 0) throw new Error(`the child failed with ${code}`)
    return signal as NodeJS.Signals | null
  })
  // Callers that await `end` get a failure. Without them it must not be an unhandled rejection.
  end.catch(() => undefined)
  return end
}

type Told =
  | { readonly kind: 'asked'; readonly runId: string; readonly key: string; readonly eventId: string }
  | { readonly kind: 'answered'; readonly runId: string; readonly key: string; readonly answer: AppendResult }
  | { readonly kind: 'delivered'; readonly runId: string; readonly runSeq: number; readonly cursor: string }
  | { readonly kind: 'finished'; readonly run: number }

/** The reports of all writers so far. */
class Oracle {
  /** The event id of each sent event, by run and key. */
  readonly asked = new Map<string, string>()
  readonly answered = new Map<string, AppendResult>()
  readonly delivered: string[] = []
  duplicates = 0
  cursor: string | undefined
  firstRun = 0

  /** Processes a report. Returns the number of its lines. */
  takeIn(path: string): number {
    if (!existsSync(path)) return 0
    // The last line may be incomplete.
    const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1)
    for (const line of lines) this.#take(JSON.parse(line) as Told)
    return lines.length
  }

  #take(told: Told): void {
    if (told.kind === 'finished') this.firstRun = told.run
    else if (told.kind === 'delivered') {
      this.delivered.push(`${told.runId} ${told.runSeq}`)
      this.cursor = told.cursor
    } else if (told.kind === 'asked') {
      const name = `${told.runId} ${told.key}`
      // The registry survives kills, so each key has one event id, however often it is sent.
      expect(this.asked.get(name) ?? told.eventId).toBe(told.eventId)
      this.asked.set(name, told.eventId)
    } else {
      const name = `${told.runId} ${told.key}`
      const first = this.answered.get(name)
      if (told.answer.idempotent) this.duplicates++
      else expect(first, 'an event is stored once').toBeUndefined()
      const { eventId, runSeq, persistedAt } = told.answer
      if (first !== undefined) expect(first).toMatchObject({ eventId, runSeq, persistedAt })
      else this.answered.set(name, told.answer)
    }
  }

  /** Checks that every answered event is stored as answered, and that only sent events are stored. */
  async check(db: Annals): Promise<Map<string, readonly RunEventRecord[]>> {
    const byRun = new Map<string, readonly RunEventRecord[]>()
    const found = new Map<string, RunEventRecord>()
    for (const runId of new Set([...this.asked.keys()].map(name => name.slice(0, name.indexOf(' '))))) {
      const records = await db.ledger.fetchEvents(runId)
      byRun.set(runId, records)
      expect(records.map(({ runSeq }) => runSeq)).toEqual(records.map((_, i) => i + 1))
      for (const record of records) found.set(`${runId} ${record.idempotencyKey}`, record)
    }
    expect(found.size, 'one record per key').toBe([...byRun.values()].flat().length)
    for (const [name, { eventId }] of found) expect(this.asked.get(name)).toBe(eventId)
    for (const [name, { eventId, runSeq, persistedAt }] of this.answered) {
      expect(found.get(name)).toMatchObject({ eventId, runSeq, persistedAt })
    }
    return byRun
  }

  /** Checks all data that is derived from the records. */
  async checkDerived(db: Annals, byRun: ReadonlyMap<string, readonly RunEventRecord[]>): Promise<number> {
    let invalid = 0
    for (const [runId, records] of byRun) {
      if (records.length === 0) continue
      const snapshot = records.reduce<RunSnapshot | null>(reduce, null) as RunSnapshot
      expect(await db.ledger.projectSnapshot(runId)).toEqual(snapshot)
      expect(await db.ledger.verifyRun(runId)).toEqual({ isValid: true, events: records.length })
      const alerts = await db.ledger.alerts({ runId })
      const bad = records.filter(({ logicalAttemptId }) => logicalAttemptId === 99)
      expect(alerts.map(({ eventId }) => eventId)).toEqual(bad.map(({ eventId }) => eventId))
      invalid += bad.length
      const status = snapshot.status === 'RUNNING' ? 'Active' : snapshot.status.toLowerCase()
      expect((await db.runs.get(runId))?.status.toLowerCase()).toBe(status.toLowerCase())
    }
    expect(await db.ledger.alerts()).toHaveLength(invalid)
    return invalid
  }

  /**
   * Checks that the records delivered to all writers are the beginning of the feed, and that the cursor continues with
   * the rest.
   */
  async checkDelivered(db: Annals, total: number): Promise<void> {
    const rest: string[] = []
    const { cursor } = this
    if (this.delivered.length < total) {
      for await (const { record } of db.ledger.subscribeAll(cursor === undefined ? {} : { cursor })) {
        rest.push(`${record.runId} ${record.runSeq}`)
        if (this.delivered.length + rest.length >= total) break
      }
    }
    const fresh: string[] = []
    for await (const { record } of db.ledger.subscribeAll()) {
      if (fresh.push(`${record.runId} ${record.runSeq}`) === total) break
    }
    expect([...this.delivered, ...rest]).toEqual(fresh)
    expect(new Set(fresh).size).toBe(total)
  }
}

describe('failure matrix, process killed, in the ledger', () => {
  test(`nothing is lost or duplicated over ${CYCLES} writers killed with SIGKILL`, async () => {
    const seed = seedOfRun()
    const random = new Random(seed)
    const since = performance.now()
    const path = join(root, 'store')
    const oracle = new Oracle()
    const killed = new Map<string, number>()
    for (let cycle = 0; cycle < CYCLES; cycle++) {
      // The first writer must do some work, so that there is a store to open.
      const { place, timesMax } = cycle === 0 ? DEATHS[6] : DEATHS[cycle % DEATHS.length]
      const report = join(root, `report-${cycle}`)
      const settings = {
        durability: (cycle + Math.floor(cycle / DEATHS.length)) % 2 === 0 ? 'durable' : 'relaxed',
        ...(timesMax === 0 ? {} : { dieIn: place, dieAt: 1 + random.below(timesMax) }),
        cursor: oracle.cursor,
        firstRun: oracle.firstRun,
      }
      try {
        const child = spawn(process.execPath, [WRITER, path, report, JSON.stringify(settings)], {
          stdio: ['ignore', 'pipe', 'inherit'],
        })
        const end = endOf(child)
        const worked = once(createInterface({ input: child.stdout! }), 'line')
        if (timesMax === 0) await Promise.race([end, worked]).then(() => sleep(random.below(60)))
        // The writer may have made too few disk calls to kill itself.
        else if (place === 'opening') await Promise.race([end, worked])
        else await end
        child.kill('SIGKILL')
        const signal = await end
        const told = oracle.takeIn(report)
        // A writer with a report had opened the store.
        const died = place === 'opening' && told > 0 ? 'anywhere' : place
        if (signal === 'SIGKILL') killed.set(died, (killed.get(died) ?? 0) + 1)
        const db = await open({ path, readOnly: true })
        await oracle.check(db)
        await db.close()
      } catch (error) {
        throw new Error(`ANNALS_SEED=${seed}, cycle ${cycle}, killed in ${place}`, { cause: error })
      }
    }
    const db = await open({ path, verifyOnOpen: true })
    const byRun = await oracle.check(db)
    const total = [...byRun.values()].flat().length
    const invalid = await oracle.checkDerived(db, byRun)
    await oracle.checkDelivered(db, total)
    await db.close()
    const kills = [...killed.values()].reduce((a, b) => a + b, 0)
    console.log(
      `ANNALS_SEED=${seed}: ${kills} writers killed (${[...killed].map(([place, n]) => `${n} in ${place}`).join(', ')}), ` +
        `${oracle.answered.size} events answered, ${total} found, 0 lost, ${oracle.duplicates} duplicates answered alike, ` +
        `${invalid} alerts, ${oracle.delivered.length} delivered, ${Math.round(performance.now() - since)} ms`,
    )
    expect(kills).toBeGreaterThanOrEqual(CYCLES * 0.9)
    expect(total).toBeGreaterThan(CYCLES)
    expect(invalid).toBeGreaterThan(0)
    expect(oracle.duplicates).toBeGreaterThan(CYCLES / 2)
  }, 600_000)

  test('a killed producer with its ids in a file sends each event under one id', async () => {
    const seed = seedOfRun()
    const random = new Random(seed)
    const db = await open({ memory: true })
    const registryPath = join(root, 'ids')
    const runId = 'far-away'
    const ids = new Map<string, string>()
    let kills = 0
    let isDone = false
    for (let life = 0; !isDone; life++) {
      expect(life).toBeLessThan(40)
      // In turn: after the id is written, before the append, and between the append and its answer.
      const death = (['claimed', 'appending', 'appended'] as const)[life % 3]
      const isLast = life >= 12
      const dieAt = life + 1 + random.below(2)
      const dieAfter = death === 'claimed' && !isLast ? dieAt : 0
      const child = fork(PRODUCER, [registryPath, runId, String(dieAfter)])
      const end = endOf(child)
      let appends = 0
      child.on('message', (message: RemoteCall) => {
        void (async () => {
          const isDying = message.method === 'appendEvent' && ++appends === dieAt && !isLast
          if (isDying && death === 'appending') child.kill('SIGKILL')
          const result = await answerTo(db, message, ids)
          if (isDying && death === 'appended') child.kill('SIGKILL')
          if (child.connected) child.send({ call: message.call, result }, () => undefined)
        })()
      })
      const signal = await end
      if (signal === 'SIGKILL') kills++
      else isDone = true
    }
    console.log(`ANNALS_SEED=${seed}: ${kills} producers killed`)
    expect(kills).toBeGreaterThanOrEqual(6)
    const records = await db.ledger.fetchEvents(runId)
    expect(records.map(({ eventType }) => eventType)).toEqual([
      'RunStarted',
      ...['fetch', 'parse', 'store'].flatMap(() => ['StepStarted', 'StepCompleted']),
      'RunPaused',
      'RunResumed',
      'RunCompleted',
    ])
    expect(db.stats().ledger.divergentDuplicates).toBe(0)
    const registry = await openFileRegistry(registryPath)
    for (const { idempotencyKey, eventId } of records) {
      expect(ids.get(idempotencyKey)).toBe(eventId)
      const another = '00000000-0000-4000-8000-000000000000'
      expect(await registry.claim(runId, idempotencyKey, another)).toBe(eventId)
    }
    await registry.close()
    expect(await db.ledger.verifyRun(runId)).toEqual({ isValid: true, events: records.length })
    await db.close()
  }, 60_000)
})

type RemoteCall = { readonly call: number } & (
  | { readonly method: 'appendEvent'; readonly args: [RunEventWrite] }
  | { readonly method: 'fetchEvents'; readonly args: [string, FetchOptions] }
)

async function answerTo(db: Annals, message: RemoteCall, ids: Map<string, string>): Promise<unknown> {
  if (message.method === 'fetchEvents') return db.ledger.fetchEvents(...message.args)
  const [{ idempotencyKey, eventId }] = message.args
  expect(ids.get(idempotencyKey) ?? eventId).toBe(eventId)
  ids.set(idempotencyKey, eventId)
  return db.ledger.appendEvent(...message.args)
}
