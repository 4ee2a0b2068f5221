import { readFile } from '../../src/disk/durable-file.ts'
import { wholeLines } from '../../src/disk/line-file.ts'
import { TelemetryClient } from '../../src/telemetry/client.ts'
import { eventIdOf, patchRun, postRun, type TelemetryRecord } from '../../src/telemetry/model.ts'
import { DEAD_FILE, OUTBOX_FILE } from '../../src/telemetry/outbox.ts'
import { Random } from '../../src/testing/random.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { TelemetryTwin } from '../simulation/telemetry-twin.ts'
import { unevenly } from './crash-shapes.ts'
import { check } from './crash-workload.ts'

/**
 * Sends telemetry records to a service that is sometimes down. At every disk call the process is killed or the power is
 * cut. The next process must find every record that was reported as waiting, in order, unless the service has it.
 */

const TRACE = '1'.repeat(32)
const NOW = Date.UTC(2026, 0, 28)
const OPERATIONS = 24
const IMAGES_MAX = 16

interface Promised {
  /** Method, id and number of each record, in the order of sending. */
  sent: readonly string[]
  /** The records that were reported as waiting. */
  waiting: readonly string[]
  /** The records that were reported as dead. */
  dead: readonly string[]
  /** The number of the last record that the service has or will get, by event id. */
  newest: ReadonlyMap<string, number>
}

const NOTHING: Promised = { sent: [], waiting: [], dead: [], newest: new Map() }

/** Runs the campaign for a seed. Returns the number of checked images. */
export async function crashOutbox(seed: number): Promise<number> {
  const random = new Random(seed)
  const disk = new SimulatedDisk({ seed, sectorBytes: 64, later: unevenly(random.fork()) })
  try {
    return await generation(disk, new TelemetryTwin(), { ...NOTHING }, random, 1)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`outbox with seed ${seed}: ${why}`, { cause: error })
  }
}

async function generation(
  disk: SimulatedDisk,
  service: TelemetryTwin,
  promised: Promised,
  random: Random,
  depth: number,
): Promise<number> {
  const images: (() => Promise<number>)[] = []
  const take = (moment: string): void => {
    const [known, then] = [service.copy(), { ...promised }]
    const judged = (image: SimulatedDisk, kind: string): void => {
      const fork = random.fork()
      images.push(() => judge(image, known.copy(), then, fork, depth, `${kind} at the ${moment}`))
    }
    judged(disk.afterProcessCrash(random.fork()), 'process crash')
    for (const cut of disk.powerCuts(random.fork(), IMAGES_MAX)) judged(cut, 'power cut')
  }
  disk.onCall = ({ kind, file, phase, index }) => {
    if (kind === 'read' || kind === 'size' || kind === 'open') return
    if (depth === 1 || random.chance(0.1)) take(`${phase} of call ${index}, ${kind} ${file}`)
  }
  await program(disk, service, promised, random.fork())
  disk.onCall = undefined
  let judged = 0
  for (const judgeOne of images) judged += await judgeOne()
  return judged
}

async function open(disk: SimulatedDisk, service: TelemetryTwin): Promise<TelemetryClient> {
  return TelemetryClient.open({
    disk: disk.handle(),
    baseUrl: 'http://telemetry',
    fetch: service.fetch,
    clock: () => NOW,
    sleep: async () => undefined,
    log: { warn: () => undefined, error: () => undefined },
    runId: 'run-1',
  })
}

async function program(
  disk: SimulatedDisk,
  service: TelemetryTwin,
  promised: Promised,
  random: Random,
): Promise<void> {
  let isDown = false
  service.isDown = () => isDown
  const client = await open(disk, service)
  for (let step = 0; step < OPERATIONS; step++) {
    if (random.chance(0.2)) isDown = !isDown
    if (random.chance(0.2)) {
      await client.flush()
      continue
    }
    const n = promised.sent.length
    const record = recordOf(n, random)
    promised.sent = [...promised.sent, keyOf(record, n)]
    const delivery = await client.send(record)
    // The service refuses an update of a run that it does not know, so the record will be dead.
    const isKnown = record.method === 'POST' || promised.newest.has(idOf(record))
    if (isKnown && (delivery === 'waiting' || delivery === 'accepted'))
      promised.newest = new Map([...promised.newest, [idOf(record), n]])
    if (delivery === 'waiting') promised.waiting = [...promised.waiting, keyOf(record, n)]
    if (delivery === 'dead') promised.dead = [...promised.dead, keyOf(record, n)]
  }
  await client.close()
}

/**
 * Makes a new run, an update of an earlier run, or an update of an unknown run, which the service refuses. Each record
 * contains its number.
 */
function recordOf(n: number, random: Random): TelemetryRecord {
  const id = (m: number): string => eventIdOf(TRACE, m.toString(16).padStart(16, '0'))
  const said = { output_summary: String(n) }
  if (random.chance(0.1)) return patchRun(id(100_000 + n), said, NOW)
  if (n % 3 !== 0) return patchRun(id(3 * random.below(Math.ceil(n / 3))), said, NOW)
  const run = {
    run_id: `run-${n}`,
    agent_name: 'a',
    job_type: 'worker',
    item_name: 'x'.repeat(random.below(90)),
  }
  return postRun({ event_id: id(n), ...run, ...said, start_time: '2026-01-28T00:00:00Z' }, NOW)
}

function idOf({ endpoint, payload }: TelemetryRecord): string {
  return endpoint.split('/')[4] ?? (payload as { event_id: string }).event_id
}

function keyOf(record: TelemetryRecord, n: unknown): string {
  return `${record.method} ${idOf(record)} ${String(n)}`
}

async function judge(
  disk: SimulatedDisk,
  service: TelemetryTwin,
  promised: Promised,
  random: Random,
  depth: number,
  what: string,
): Promise<number> {
  try {
    const there = keysIn(disk, OUTBOX_FILE)
    const positions = there.map(key => promised.sent.indexOf(key))
    check(
      positions.every((at, i) => at >= 0 && (i === 0 || at > positions[i - 1])),
      'N11: the outbox is out of order',
    )
    const known = new Set([...there, ...keysIn(disk, DEAD_FILE), ...service.accepted])
    const lost = promised.waiting.filter(key => !known.has(key))
    check(lost.length === 0, `N11: records that were said to wait are lost: ${lost.join(', ')}`)
    const undead = promised.dead.filter(key => !keysIn(disk, DEAD_FILE).includes(key))
    check(undead.length === 0, `N11: records that were said to be dead are lost: ${undead.join(', ')}`)
    if (depth === 1 && random.chance(0.02))
      return 1 + (await generation(disk, service, { ...promised }, random, depth + 1))
    const client = await open(disk, service)
    const report = await client.flush()
    await client.close()
    check(report.waiting === 0, 'N11: the service is there, and records still wait')
    check(keysIn(disk, OUTBOX_FILE).length === 0, 'N11: what was accepted is still in the outbox')
    for (const [id, n] of promised.newest) {
      const said = Number(service.runs.get(id)?.['output_summary'])
      check(said >= n, `N11: the service says ${said} of ${id}, and was told ${n}`)
    }
    return 1
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`${what}: ${why}`, { cause: error })
  }
}

/** The keys of the complete lines. A damaged line has no record. */
function keysIn(disk: SimulatedDisk, name: string): string[] {
  const bytes = readFile(disk, name) ?? Buffer.alloc(0)
  const lines = bytes.toString('utf8', 0, wholeLines(bytes)).split('\n').filter(Boolean)
  return lines.map(line => {
    try {
      const record = JSON.parse(line) as TelemetryRecord
      return keyOf(record, (record.payload as { output_summary?: unknown }).output_summary)
    } catch (error) {
      throw new Error(`N11: ${name} has a line that is no record: ${String(error)}`)
    }
  })
}
