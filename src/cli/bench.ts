import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import type { Command } from 'commander'
import { type Annals, deriveIdempotencyKey, open } from '../index.ts'
import { type Context, type Json, usageError, wholeNumber, withExamples, withJson } from './command.ts'
import { printTable } from './table.ts'

interface Options extends Json {
  readonly dir: string
  readonly seconds: number
}

interface Measured {
  readonly name: string
  readonly inFlight: number
  readonly perSecond: number
  readonly p50Us: number
  readonly p99Us: number
}

interface Measurement {
  readonly name: string
  readonly inFlight: number
  readonly db: Annals
  readonly operation: (n: number) => Promise<unknown>
}

const KEYS = 10_000
const RUNS = 64

export function addBench(program: Command, context: Context): void {
  const command = program
    .command('bench')
    .description('measure this machine: durable and relaxed appends, ledger events, gets')
    .option('--dir <dir>', 'folder on the disk to measure; a temporary folder is made there', '.')
    .option('--seconds <n>', 'duration of each measurement', wholeNumber('--seconds', 1, 600), 2)
    .action((options: Options) => bench(options, context))
  withJson(command)
  withExamples(command, [
    { type: 'bench', for: 'about ten seconds, on the disk of this folder' },
    { type: 'bench --dir /mnt/nvme --seconds 10', for: 'another disk, for longer' },
  ])
}

async function bench({ dir, seconds, json }: Options, { terminal }: Context): Promise<void> {
  if (statSync(dir, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw usageError(`there is no folder ${dir}`, { dir })
  }
  const folder = mkdtempSync(join(dir, '.annals-bench-'))
  const remove = (): void => rmSync(folder, { recursive: true, force: true })
  process.once('exit', remove)
  try {
    const durable = await open({ path: join(folder, 'durable') })
    const relaxed = await open({ path: join(folder, 'relaxed'), durability: 'relaxed' })
    for (let n = 0; n < KEYS; n++) await relaxed.kv.put('run', `key-${n}`, { n, text: 'x'.repeat(100) })
    // Steps of a run that has not started would each raise an alert.
    for (let n = 0; n < RUNS; n++) await durable.ledger.appendEvent(eventOf(n, 'RunStarted'))
    const payload = { step: 1, text: 'x'.repeat(100) }
    const append = (db: Annals) => (n: number) => db.events.append(`run-${n % RUNS}`, 'step_done', payload)
    const measurements: readonly Measurement[] = [
      { name: 'append, durable', inFlight: 1, db: durable, operation: append(durable) },
      { name: 'append, durable', inFlight: 64, db: durable, operation: append(durable) },
      { name: 'append, relaxed', inFlight: 64, db: relaxed, operation: append(relaxed) },
      {
        name: 'ledger record, durable',
        inFlight: 64,
        db: durable,
        operation: n => durable.ledger.appendEvent(eventOf(n, 'StepStarted')),
      },
      {
        name: 'get',
        inFlight: 1,
        db: relaxed,
        operation: n => relaxed.kv.get('run', `key-${(n * 7_919) % KEYS}`),
      },
    ]
    const results: Measured[] = []
    for (const measurement of measurements) {
      terminal.progress(`measuring: ${measurement.name}, ${measurement.inFlight} in flight`)
      results.push(await measured(measurement, seconds * 1_000))
    }
    terminal.progress('')
    await durable.close()
    await relaxed.close()
    if (json === true)
      return await terminal.json({ node: process.version, cpu: cpus()[0]?.model ?? '', results })
    await printTable(terminal, results, [
      { title: 'WHAT', text: ({ name }) => name },
      { title: 'IN FLIGHT', text: ({ inFlight }) => String(inFlight), alignRight: true },
      {
        title: 'PER SECOND',
        text: ({ perSecond }) => Math.round(perSecond).toLocaleString('en'),
        alignRight: true,
      },
      { title: 'MEDIAN', text: ({ p50Us }) => microseconds(p50Us), alignRight: true },
      { title: '99 %', text: ({ p99Us }) => microseconds(p99Us), alignRight: true },
    ])
    terminal.note(
      `${process.version} on ${cpus()[0]?.model ?? 'an unknown processor'}; other programs running now affect these numbers`,
    )
  } finally {
    process.off('exit', remove)
    remove()
  }
}

const SAMPLES_MAX = 1_000_000

async function measured({ name, inFlight, operation }: Measurement, forMs: number): Promise<Measured> {
  const samples: number[] = []
  let count = 0
  const since = performance.now()
  const until = since + forMs
  const work = async (): Promise<void> => {
    for (let start = performance.now(); start < until; start = performance.now()) {
      await operation(count++)
      if (samples.length < SAMPLES_MAX) samples.push(performance.now() - start)
    }
  }
  await Promise.all(Array.from({ length: inFlight }, work))
  const tookMs = performance.now() - since
  const sorted = Float64Array.from(samples).sort()
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] * 1_000
  return { name, inFlight, perSecond: (count / tookMs) * 1_000, p50Us: at(0.5), p99Us: at(0.99) }
}

function eventOf(
  n: number,
  eventType: 'RunStarted' | 'StepStarted',
): Parameters<Annals['ledger']['appendEvent']>[0] {
  const identity = {
    runId: `ledger-${n % RUNS}`,
    eventType,
    ...(eventType === 'StepStarted' ? { stepId: `step-${n}` } : {}),
    logicalAttemptId: 1,
    planId: 'bench',
    planVersion: '1',
  }
  return {
    ...identity,
    eventId: randomUUID(),
    emittedAt: new Date().toISOString(),
    tenantId: 'bench',
    projectId: 'bench',
    environmentId: 'bench',
    engineAttemptId: 1,
    idempotencyKey: deriveIdempotencyKey(identity),
  }
}

function microseconds(us: number): string {
  return us < 1_000 ? `${us.toFixed(us < 10 ? 1 : 0)} µs` : `${(us / 1_000).toFixed(1)} ms`
}
