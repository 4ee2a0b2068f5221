import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { defineWorkflowSpec, OpenWorkflow } from 'openworkflow'
import { afterAll, describe, expect, test } from 'vitest'
import { type Annals, open } from '../../src/annals.ts'
import { AnnalsBackend } from '../../src/integrations/openworkflow.ts'
import { openPostgres } from '../../src/postgres.ts'
import { CONNECTION_STRING, dropSchema, newSchema } from '../postgres/schema.ts'
import { onEveryEngine } from './engines.ts'

const PROGRAM = fileURLToPath(new URL('./openworkflow-worker.mjs', import.meta.url))

onEveryEngine(db => {
  test('a worker runs steps, sleeps, children, signals and retries', async () => {
    const ow = new OpenWorkflow({ backend: new AnnalsBackend(db(), { namespaceId: randomUUID() }) })
    const double = defineWorkflowSpec<number, number>({ name: 'double' })
    ow.implementWorkflow(double, async ({ input, step }) => step.run({ name: 'multiply' }, () => input * 2))
    const executed: string[] = []
    const order = ow.defineWorkflow<number, unknown>({ name: 'order' }, async ({ input, step }) => {
      const first = await step.run({ name: 'first' }, () => {
        executed.push('first')
        return input + 1
      })
      await step.sleep('pause', '10ms')
      const doubled = await step.runWorkflow(double, first)
      const retryPolicy = { initialInterval: '1ms', maximumAttempts: 3 } as const
      const tried = await step.run({ name: 'flaky', retryPolicy }, () => {
        executed.push('flaky')
        if (executed.filter(name => name === 'flaky').length < 3) throw new Error('not yet')
        return 'in the end'
      })
      const answer = await step.waitForSignal<string>({ signal: 'approve', timeout: '20s' })
      return { first, doubled, tried, answer: answer?.data }
    })
    const worker = ow.newWorker({ concurrency: 4 })
    await worker.start()
    const handle = await order.run(20)
    await expect
      .poll(async () => (await ow.sendSignal({ signal: 'approve', data: 'yes' })).workflowRunIds, {
        timeout: 20_000,
      })
      .toEqual([handle.workflowRun.id])
    expect(await handle.result({ timeoutMs: 20_000 })).toEqual({
      first: 21,
      doubled: 42,
      tried: 'in the end',
      answer: 'yes',
    })
    expect(executed).toEqual(['first', 'flaky', 'flaky', 'flaky'])
    await worker.stop()
  }, 60_000)
})

interface WorkerProcess {
  readonly child: ChildProcess
  /** The steps that the worker has begun. */
  readonly begun: string[]
}

/** Starts a worker. Returns once it has begun the step. */
async function startWorker(options: object, untilStep: string): Promise<WorkerProcess> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const begun: string[] = []
  for await (const line of createInterface({ input: child.stdout! })) {
    begun.push(line)
    if (line === untilStep) break
  }
  return { child, begun }
}

/** Kills a worker in its second step, and lets another process finish the run. */
async function killAndFinish(options: object, openStore: () => Promise<Annals>): Promise<void> {
  const first = await startWorker({ ...options, hangIn: 'two' }, 'two')
  expect(first.begun).toEqual(['one', 'two'])
  const died = once(first.child, 'exit')
  first.child.kill('SIGKILL')
  await died
  const second = await startWorker(options, 'three')
  expect(second.begun).toEqual(['two', 'three'])
  const ended = once(second.child, 'exit')
  second.child.stdin!.end()
  await ended
  const db = await openStore()
  const backend = new AnnalsBackend(db)
  const [run] = (await backend.listWorkflowRuns({})).data
  expect(run).toMatchObject({
    status: 'completed',
    attempts: 2,
    output: [`one by ${first.child.pid}`, `two by ${second.child.pid}`, `three by ${second.child.pid}`],
  })
  const { data } = await backend.listStepAttempts({ workflowRunId: run.id })
  expect(data.map(({ stepName, status }) => `${stepName} ${status}`)).toEqual([
    'one completed',
    'two running',
    'two completed',
    'three completed',
  ])
  await db.close()
}

describe('a worker that is killed in a step', () => {
  const path = mkdtempSync(join(tmpdir(), 'annals-openworkflow-'))
  afterAll(() => rmSync(path, { recursive: true, force: true }))

  test('is replaced by another one, which repeats only that step, on disk', async () => {
    await killAndFinish({ path }, () => open({ path }))
  }, 60_000)

  // reason: needs PostgreSQL; the global setup prints why there is none
  test.skipIf(CONNECTION_STRING === '')(
    'is replaced by another one, which repeats only that step, on PostgreSQL',
    async () => {
      const options = { connectionString: CONNECTION_STRING, schema: newSchema() }
      await killAndFinish(options, () => openPostgres(options))
      await dropSchema(options.schema)
    },
    60_000,
  )
})
