import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  type FaultyTelemetry,
  openFaultyTelemetry,
  type ServiceFault,
} from '../../test/telemetry/faulty-service.ts'
import { openNodeDisk } from '../disk/node-disk.ts'
import { flushTelemetry } from '../launch/flush-telemetry.ts'
import { TelemetryClient, type TelemetryClientOptions } from './client.ts'
import { eventIdOf, patchRun, postRun, type TelemetryRecord, type TelemetryRun } from './model.ts'
import { DEAD_FILE, OUTBOX_FILE, Outbox } from './outbox.ts'

const NOW = Date.UTC(2026, 10, 15, 3, 30)
const TRACE = '0af7651916cd43dd8448eb211c80319c'

let folder: string
let service: FaultyTelemetry
let warnings: string[]
let errors: string[]
let waits: number[]

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'annals-telemetry-'))
  service = await openFaultyTelemetry()
  reset()
})

afterEach(async () => {
  await service.close()
  rmSync(folder, { recursive: true })
})

function reset(): void {
  warnings = []
  errors = []
  waits = []
}

function open(options: Partial<TelemetryClientOptions> = {}): Promise<TelemetryClient> {
  return TelemetryClient.open({
    baseUrl: service.baseUrl,
    disk: openNodeDisk(folder),
    runId: 'run-1',
    clock: () => NOW,
    sleep: async ms => void waits.push(ms),
    log: { warn: message => warnings.push(message), error: message => errors.push(message) },
    ...options,
  })
}

/** The POST of a run and the PATCH that ends it. */
function record(n: number, kind: 'post' | 'patch', text = ''): TelemetryRecord {
  const eventId = eventIdOf(TRACE, n.toString(16).padStart(16, '0'))
  if (kind === 'patch') return patchRun(eventId, { status: 'success', output_summary: `end ${n}` }, NOW)
  const run = { event_id: eventId, run_id: `run-1-node-${n}`, agent_name: 'a', job_type: 'worker' }
  return postRun({ ...run, start_time: '2026-11-15T03:30:00Z', item_name: `${n}${text}` }, NOW)
}

const TRAIL: readonly TelemetryRecord[] = Array.from({ length: 12 }, (_, i) =>
  record(Math.floor(i / 2), i % 2 === 0 ? 'post' : 'patch'),
)

const keyOf = (method: string, path: string, payload: object): string =>
  method === 'POST' ? `POST ${(payload as { event_id: string }).event_id}` : `PATCH ${path}`
const taken = (): string[] =>
  service.accepted.map(({ method, path, payload }) => keyOf(method, path, payload))
const expected = (records: readonly TelemetryRecord[]): string[] =>
  records.map(({ method, endpoint, payload }) => keyOf(method, endpoint, payload))

function lines(file: string, at: string = folder): Record<string, unknown>[] {
  if (!existsSync(join(at, file))) return []
  const text = readFileSync(join(at, file), 'utf8')
  expect(text.endsWith('\n')).toBe(true)
  return text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as Record<string, unknown>)
}

/** Applies this failure to every request from now on. */
function tell(fault: ServiceFault | undefined): void {
  service.script = () => fault
}

describe('N11: the outbox', () => {
  test('N11: if the service is down for the whole run, the next start delivers the trail in order', async () => {
    tell('down')
    const client = await open()
    for (const item of TRAIL) expect(await client.send(item)).toBe('waiting')
    expect(await client.flush()).toEqual({ accepted: 0, dead: 0, waiting: TRAIL.length })
    expect(lines(OUTBOX_FILE)).toEqual(TRAIL)
    tell(undefined)
    const next = await open()
    expect(await next.flush()).toEqual({ accepted: TRAIL.length, dead: 0, waiting: 0 })
    expect(taken()).toEqual(expected(TRAIL))
    expect(existsSync(join(folder, OUTBOX_FILE))).toBe(false)
  })

  test('N11: while the outbox is not empty, later records join it without a request', async () => {
    service.script = (_, n) => (n === 1 ? { status: 500 } : undefined)
    const client = await open()
    for (const item of TRAIL) await client.send(item)
    expect(service.arrived).toHaveLength(1)
    expect(warnings).toEqual(['telemetry waits in the outbox: HTTP 500'])
    await client.flush()
    expect(taken()).toEqual(expected(TRAIL))
    expect(await client.send(record(99, 'post'))).toBe('accepted')
  })

  test('N11: a flush tries a record three times, after 1 and 2 s, and then keeps it and all later ones', async () => {
    tell({ status: 503 })
    const client = await open()
    await client.send(TRAIL[0])
    await client.send(TRAIL[1])
    await client.flush()
    expect(service.arrived).toHaveLength(1 + 3)
    expect(waits).toEqual([1000, 2000])
    expect(lines(OUTBOX_FILE)).toEqual(TRAIL.slice(0, 2))
  })

  test('N11: Retry-After is waited for, up to 10 s', async () => {
    service.script = (_, n) => (n <= 3 ? { status: 429, retryAfter: n === 2 ? '4' : '3600' } : undefined)
    const client = await open()
    await client.send(TRAIL[0])
    await client.flush()
    expect(waits).toEqual([4000, 10_000])
    expect(taken()).toEqual(expected(TRAIL.slice(0, 1)))
  })

  test.each([408, 425, 429, 500, 502, 599])('N11: %i waits', async status => {
    tell({ status })
    const client = await open()
    expect(await client.send(TRAIL[0])).toBe('waiting')
    expect(lines(DEAD_FILE)).toEqual([])
  })

  test('N11: after a time-out a record waits in the outbox', async () => {
    tell('timeout')
    const client = await open({ timeoutMs: 50 })
    expect(await client.send(TRAIL[0])).toBe('waiting')
  })

  test.each([401, 403])(
    'N11: after %i a record stays in the outbox, is not retried, and causes one warning',
    async status => {
      tell({ status })
      const client = await open()
      for (const item of TRAIL) await client.send(item)
      await client.flush()
      await client.flush()
      expect(warnings).toHaveLength(1)
      expect(service.arrived).toHaveLength(3)
      expect(lines(OUTBOX_FILE)).toEqual(TRAIL)
      tell(undefined)
      await client.flush()
      expect(taken()).toEqual(expected(TRAIL))
    },
  )

  test.each(['nonsense', 'ftp://host', 'http://me:hunter2hunter2@127.0.0.1:1'])(
    'N11: with the invalid URL %s records wait, and the warning shows no password',
    async baseUrl => {
      const client = await open({ baseUrl })
      expect(await client.send(TRAIL[0])).toBe('waiting')
      expect(warnings.join()).toContain('is not a plain http or https URL')
      expect(warnings.join()).not.toContain('hunter2')
    },
  )

  test('N11: the token is sent and is in no file', async () => {
    await service.close()
    service = await openFaultyTelemetry('a-token-of-telemetry')
    const without = await open()
    await without.send(TRAIL[0])
    const client = await open({ token: 'a-token-of-telemetry' })
    expect(await client.flush()).toMatchObject({ accepted: 1, waiting: 0 })
    tell('down')
    await client.send(TRAIL[1])
    expect(readFileSync(join(folder, OUTBOX_FILE), 'utf8')).not.toContain('a-token-of-telemetry')
  })

  test('N11: a refused record becomes a dead record with the answer, and delays nothing', async () => {
    const bad = postRun({ ...(record(50, 'post').payload as TelemetryRun), start_time: 'yesterday' }, NOW)
    tell('down')
    const client = await open()
    for (const item of [TRAIL[0], bad, TRAIL[1]]) await client.send(item)
    tell(undefined)
    expect(await client.flush()).toEqual({ accepted: 2, dead: 1, waiting: 0 })
    expect(await client.send(bad)).toBe('dead')
    expect(taken()).toEqual(expected(TRAIL.slice(0, 2)))
    const dead = lines(DEAD_FILE)
    expect(dead).toHaveLength(2)
    expect(dead[0]).toMatchObject({
      ...bad,
      status: 422,
      answer: { detail: [{ loc: ['body', 'start_time'] }] },
      reason: expect.stringContaining('HTTP 422'),
    })
    expect(existsSync(join(folder, OUTBOX_FILE))).toBe(false)
  })

  test('N11: a record whose answer was lost is sent again and is a duplicate', async () => {
    service.script = (_, n) => (n === 1 ? 'accepts-silently' : undefined)
    const client = await open()
    expect(await client.send(TRAIL[0])).toBe('waiting')
    await client.flush()
    expect(service.duplicates).toBe(1)
    expect(taken()).toEqual(expected(TRAIL.slice(0, 1)))
  })

  test('N11: a crash in the middle of a flush neither loses nor duplicates a record', async () => {
    tell('down')
    const client = await open()
    for (const item of TRAIL) await client.send(item)
    const before = readFileSync(join(folder, OUTBOX_FILE))
    service.script = (_, n) => (service.accepted.length >= 5 && n < 60 ? 'down' : undefined)
    await client.flush()
    // As if the process had died before it removed the accepted records.
    writeFileSync(join(folder, OUTBOX_FILE), before)
    tell(undefined)
    const next = await open()
    await next.flush()
    expect(new Set(taken())).toEqual(new Set(expected(TRAIL)))
    expect(service.runs.size).toBe(TRAIL.length / 2)
    expect([...service.runs.values()].every(run => run['status'] === 'success')).toBe(true)
  })

  test('N11: a torn last line is dropped, and the next record starts a new line', async () => {
    tell('down')
    const client = await open()
    await client.send(TRAIL[0])
    const path = join(folder, OUTBOX_FILE)
    writeFileSync(path, `${readFileSync(path, 'utf8')}{"method":"POST","endp`)
    const next = await open()
    await next.send(TRAIL[1])
    expect(lines(OUTBOX_FILE)).toEqual(TRAIL.slice(0, 2))
    expect(warnings.some(message => message.includes('torn by a crash'))).toBe(true)
  })

  test('N11: lines that are not records of the service become dead records', async () => {
    const hostile = { ...TRAIL[0], endpoint: '@evil.example/api/v1/runs' }
    const texts = [
      'not json',
      JSON.stringify(hostile),
      JSON.stringify({ ...TRAIL[0], endpoint: '/api/v1/runs/../x' }),
    ]
    writeFileSync(join(folder, OUTBOX_FILE), `${[...texts, JSON.stringify(TRAIL[0])].join('\n')}\n`)
    const client = await open({ token: 'secret-token' })
    expect(await client.flush()).toEqual({ accepted: 1, dead: 3, waiting: 0 })
    expect(lines(DEAD_FILE).map(line => line['reason'])).toEqual([
      'not a valid record: not JSON',
      'not a valid record: endpoint is not one of the service',
      'not a valid record: endpoint is not one of the service',
    ])
  })

  test('N11: a full outbox drops the oldest records, with an error and a record about it', async () => {
    tell('down')
    const client = await open({ bytesMax: 20_000 })
    for (let n = 0; n < 100; n++) await client.send(record(n, 'post', 'x'.repeat(500)))
    expect(readFileSync(join(folder, OUTBOX_FILE)).length).toBeLessThanOrEqual(20_000)
    expect(errors.length).toBeGreaterThan(0)
    expect(errors[0]).toContain('TELEMETRY_OUTBOX_TRUNCATED')
    const left = lines(OUTBOX_FILE).map(line => line['payload'] as Record<string, unknown>)
    expect(left.at(-1)?.['run_id']).toBe('run-1-node-99')
    const said = left.filter(payload => payload['job_type'] === 'telemetry')
    expect(said.length).toBeGreaterThan(0)
    expect(said[0]).toMatchObject({
      agent_name: 'launch.telemetry',
      error_summary: 'TELEMETRY_OUTBOX_TRUNCATED',
      parent_run_id: 'run-1',
    })
    tell(undefined)
    expect(await client.flush()).toEqual({ accepted: left.length, dead: 0, waiting: 0 })
    const runs = [...service.runs.values()].filter(run => run['job_type'] !== 'telemetry')
    expect(runs.map(run => run['run_id'])).toEqual(
      Array.from({ length: runs.length }, (_, i) => `run-1-node-${100 - runs.length + i}`),
    )
  })

  test('N11: a record that is dropped while it is sent does not take another one with it', async () => {
    const log = { warn: () => undefined, error: () => undefined }
    const outbox = await Outbox.open({
      disk: openNodeDisk(folder),
      log,
      bytesMax: 5_000,
      truncated: () => record(0, 'post'),
    })
    for (let n = 1; n <= 8; n++) await outbox.append(record(n, 'post', 'x'.repeat(300)))
    const sending = outbox.peek()!
    while (outbox.peek()?.sequence === sending.sequence)
      await outbox.append(record(9, 'post', 'y'.repeat(300)))
    const before = outbox.length
    await outbox.accept(sending.sequence)
    await outbox.bury(sending.sequence, { reason: 'x', died_at: '2026-11-15T03:30:00Z' })
    expect(outbox.length).toBe(before)
    expect(lines(OUTBOX_FILE)).toHaveLength(before)
    expect(existsSync(join(folder, DEAD_FILE))).toBe(false)
  })

  test('N11: records sent during a flush come after those that wait', async () => {
    tell('down')
    const client = await open()
    for (const item of TRAIL.slice(0, 6)) await client.send(item)
    tell(undefined)
    const flush = client.flush()
    await Promise.all(TRAIL.slice(6).map(item => client.send(item)))
    await flush
    await client.flush()
    expect(taken()).toEqual(expected(TRAIL))
  })

  test('N11: a failing disk is reported, throws nothing, and its records are sent from memory', async () => {
    tell('down')
    const client = await open()
    rmSync(folder, { recursive: true })
    expect(await client.send(TRAIL[0])).toBe('unwritten')
    expect(errors).toHaveLength(1)
    mkdirSync(folder)
    tell(undefined)
    await client.flush()
    expect(taken()).toEqual(expected(TRAIL.slice(0, 1)))
  })

  test('N11: whatever the service does, the next flush completes the trail, in order and without duplicates', async () => {
    const fault = fc.constantFrom<ServiceFault | undefined>(
      undefined,
      undefined,
      'down',
      'accepts-silently',
      { status: 500 },
      { status: 429, retryAfter: '1' },
      { status: 401 },
    )
    const step = fc.constantFrom('send', 'send', 'send', 'flush', 'restart')
    await fc.assert(
      fc.asyncProperty(
        fc.array(fault, { maxLength: 40 }),
        fc.array(step, { maxLength: 30 }),
        async (faults, steps) => {
          const at = mkdtempSync(join(folder, 'p-'))
          await using fake = await openFaultyTelemetry()
          fake.script = (_, n) => faults[n - 1]
          let client = await open({ disk: openNodeDisk(at), baseUrl: fake.baseUrl })
          const sent: TelemetryRecord[] = []
          for (const what of steps) {
            if (what === 'flush') await client.flush()
            else if (what === 'restart')
              client = await open({ disk: openNodeDisk(at), baseUrl: fake.baseUrl })
            else {
              sent.push(record(Math.floor(sent.length / 2), sent.length % 2 === 0 ? 'post' : 'patch'))
              await client.send(sent.at(-1)!)
            }
          }
          fake.script = () => undefined
          expect(await client.flush()).toMatchObject({ dead: 0, waiting: 0 })
          const got = fake.accepted.map(({ method, path, payload }) => keyOf(method, path, payload))
          // A PATCH whose answer was lost is applied again first, and changes nothing.
          expect(got.filter((key, i) => key !== got[i - 1])).toEqual(expected(sent))
          expect(existsSync(join(at, OUTBOX_FILE))).toBe(false)
        },
      ),
      { numRuns: 60 },
    )
  })
})

describe('flushing a folder of runs', () => {
  test('N11: sends what earlier runs left behind, except for a run in progress', async () => {
    tell('down')
    for (const [n, name] of ['run-a', 'run-b', 'run-c'].entries()) {
      mkdirSync(join(folder, name))
      const client = await open({ disk: openNodeDisk(join(folder, name)) })
      await client.send(record(n, 'post'))
    }
    mkdirSync(join(folder, 'run-d'))
    tell(undefined)
    const atWork = openNodeDisk(join(folder, 'run-b'))
    await atWork.lock()
    const options = { runsFolder: folder, telemetry: { url: service.baseUrl } }
    const flushed = await flushTelemetry(options)
    expect(flushed.map(run => [run.runId, run.accepted])).toEqual([
      ['run-a', 1],
      ['run-c', 1],
    ])
    expect(lines(OUTBOX_FILE, join(folder, 'run-b'))).toHaveLength(1)
    atWork.close()
    expect(await flushTelemetry(options)).toMatchObject([{ runId: 'run-b', accepted: 1 }])
  })
})
