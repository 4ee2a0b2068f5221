import { randomUUID } from 'node:crypto'
import type { Backend, CreateWorkflowRunParams, StepAttempt, WorkflowRun } from 'openworkflow/internal'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { open } from '../../src/annals.ts'
import { AnnalsBackend } from '../../src/integrations/openworkflow.ts'
import { onEveryEngine } from './engines.ts'

const WORKER = 'worker-1'
const OTHER = 'worker-2'
const LEASE_MS = 30_000
const RETRY = {
  initialInterval: '1s',
  backoffCoefficient: 2,
  maximumInterval: '3 seconds',
  maximumAttempts: 4,
} as const
const YEAR_MS = 365 * 24 * 60 * 60 * 1_000

/** Sets the clock, and returns a function that moves it on. */
function stopClock(): (ms: number) => void {
  let now = Date.now()
  vi.spyOn(Date, 'now').mockImplementation(() => now)
  return ms => {
    now += ms
  }
}
afterEach(() => {
  vi.restoreAllMocks()
})

function create(backend: Backend, params: Partial<CreateWorkflowRunParams> = {}): Promise<WorkflowRun> {
  return backend.createWorkflowRun({
    workflowName: 'mail',
    version: null,
    idempotencyKey: null,
    config: {},
    context: null,
    input: null,
    parentStepAttemptNamespaceId: null,
    parentStepAttemptId: null,
    availableAt: null,
    deadlineAt: null,
    ...params,
  })
}

async function claim(backend: Backend, workerId = WORKER): Promise<WorkflowRun> {
  const run = await backend.claimWorkflowRun({ workerId, leaseDurationMs: LEASE_MS })
  if (run === null) throw new Error('there is no run to claim')
  return run
}

function tryClaim(backend: Backend, workerId = OTHER): Promise<WorkflowRun | null> {
  return backend.claimWorkflowRun({ workerId, leaseDurationMs: LEASE_MS })
}

async function createAndClaim(
  backend: Backend,
  params: Partial<CreateWorkflowRunParams> = {},
): Promise<WorkflowRun> {
  const { id } = await create(backend, params)
  const run = await claim(backend)
  expect(run.id).toBe(id)
  return run
}

function begin(
  backend: Backend,
  workflowRunId: string,
  step: Partial<Pick<StepAttempt, 'stepName' | 'kind' | 'context'>> = {},
): Promise<StepAttempt> {
  return backend.createStepAttempt({
    workflowRunId,
    workerId: WORKER,
    stepName: 'send',
    kind: 'function',
    config: {},
    context: null,
    ...step,
  })
}

function beginWait(backend: Backend, workflowRunId: string, signal: string): Promise<StepAttempt> {
  const context = { kind: 'signal-wait', signal, timeoutAt: new Date(YEAR_MS * 80).toISOString() } as const
  return begin(backend, workflowRunId, { kind: 'signal-wait', context })
}

function owned(run: WorkflowRun, workerId = WORKER): { workflowRunId: string; workerId: string } {
  return { workflowRunId: run.id, workerId }
}

/** A running parent, its step attempt that waits for a child, and the child, which is pending. */
async function family(
  backend: Backend,
): Promise<{ parent: WorkflowRun; attempt: StepAttempt; child: WorkflowRun }> {
  const parent = await createAndClaim(backend, { workflowName: 'parent' })
  const attempt = await begin(backend, parent.id, {
    kind: 'workflow',
    context: { kind: 'workflow', timeoutAt: null },
  })
  const child = await create(backend, {
    workflowName: 'child',
    parentStepAttemptNamespaceId: attempt.namespaceId,
    parentStepAttemptId: attempt.id,
  })
  return { parent, attempt, child }
}

function link(backend: Backend, parent: WorkflowRun, attempt: StepAttempt, child: WorkflowRun) {
  return backend.setStepAttemptChildWorkflowRun({
    ...owned(parent),
    stepAttemptId: attempt.id,
    childWorkflowRunNamespaceId: child.namespaceId,
    childWorkflowRunId: child.id,
  })
}

onEveryEngine(db => {
  const newBackend = (): AnnalsBackend => new AnnalsBackend(db(), { namespaceId: randomUUID() })

  describe('runs', () => {
    test('a run has all that it was given, and is found by its id', async () => {
      const backend = newBackend()
      const params = {
        workflowName: 'a name / with ünusual \u{1f600} characters',
        version: 'v2',
        idempotencyKey: 'once',
        config: { retries: [1, 2.5, null] },
        context: { b: 1, a: { nested: true } },
        input: { text: 'hello' },
        availableAt: new Date(Date.now() + YEAR_MS),
        deadlineAt: new Date(Date.now() + 2 * YEAR_MS),
      }
      const run = await create(backend, params)
      expect(run).toMatchObject({ ...params, status: 'pending', attempts: 0, output: null, error: null })
      expect(run.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
      expect(await backend.getWorkflowRun({ workflowRunId: run.id })).toEqual(run)
      expect(await backend.getWorkflowRun({ workflowRunId: randomUUID() })).toBeNull()
    })

    test('values are stored as JSON has them', async () => {
      const backend = newBackend()
      const input = JSON.parse('{"kept":1}') as { kept: number; gone?: number }
      Object.assign(input, { gone: undefined })
      const run = await createAndClaim(backend, { input: input as { kept: number } })
      expect(run.input).toEqual({ kept: 1 })
      const attempt = await begin(backend, run.id)
      const error: { message: string } = { message: 'no', ...{ code: undefined } }
      const failed = await backend.failStepAttempt({ ...owned(run), stepAttemptId: attempt.id, error })
      expect(failed.error).toEqual({ message: 'no' })
    })

    test('a large input is there after each call, and is stored once', async () => {
      const backend = newBackend()
      const input = { text: 'x'.repeat(100_000) }
      const created = await createAndClaim(backend, { input, config: { a: 1 } })
      expect(created.input).toEqual(input)
      const heard = await backend.extendWorkflowRunLease({ ...owned(created), leaseDurationMs: LEASE_MS })
      expect(heard).toMatchObject({ input, config: { a: 1 } })
      expect((await backend.listWorkflowRuns({})).data[0].input).toEqual(input)
      const done = await backend.completeWorkflowRun({ ...owned(created), output: 'done' })
      expect(done).toMatchObject({ input, output: 'done' })
    })

    test('namespaces do not see each other', async () => {
      const [one, two] = [newBackend(), newBackend()]
      const run = await create(one)
      expect(await two.getWorkflowRun({ workflowRunId: run.id })).toBeNull()
      expect(await tryClaim(two)).toBeNull()
      expect((await two.listWorkflowRuns({})).data).toEqual([])
      expect(await two.countWorkflowRuns()).toMatchObject({ pending: 0 })
    })

    test('concurrent creates with one idempotency key make one run', async () => {
      const backend = newBackend()
      const runs = await Promise.all(
        Array.from({ length: 20 }, (_, i) => create(backend, { idempotencyKey: 'k', input: i })),
      )
      expect(new Set(runs.map(({ id }) => id)).size).toBe(1)
      expect(new Set(runs.map(({ input }) => input)).size).toBe(1)
      expect((await backend.listWorkflowRuns({})).data).toHaveLength(1)
      const other = await create(backend, { workflowName: 'other', idempotencyKey: 'k' })
      expect(other.id).not.toBe(runs[0].id)
    })

    test('an idempotency key counts for 24 hours, also after its run has ended', async () => {
      const advance = stopClock()
      const backend = newBackend()
      const first = await create(backend, { idempotencyKey: 'k' })
      await backend.cancelWorkflowRun({ workflowRunId: first.id })
      advance(24 * 60 * 60 * 1_000 - 1)
      expect(await create(backend, { idempotencyKey: 'k' })).toMatchObject({
        id: first.id,
        status: 'canceled',
      })
      advance(2)
      expect((await create(backend, { idempotencyKey: 'k' })).id).not.toBe(first.id)
    })
  })

  describe('claims', () => {
    test('runs are claimed in the order in which they are due, pending ones first', async () => {
      const advance = stopClock()
      const backend = newBackend()
      const sleeping = await createAndClaim(backend)
      await backend.sleepWorkflowRun({ ...owned(sleeping), availableAt: new Date(Date.now() + 1) })
      const late = await create(backend, { availableAt: new Date(Date.now() + 2_000) })
      const future = await create(backend, { availableAt: new Date(Date.now() + 60_000) })
      const early = await create(backend, { availableAt: new Date(Date.now() + 1_000) })
      advance(2_000)
      const claimed = []
      for (let run = await tryClaim(backend); run !== null; run = await tryClaim(backend))
        claimed.push(run.id)
      expect(claimed).toEqual([early.id, late.id, sleeping.id])
      advance(58_000)
      expect((await tryClaim(backend))?.id).toBe(future.id)
    })

    test('fifty workers that claim at the same time get different runs', async () => {
      const namespaceId = randomUUID()
      const backends = Array.from({ length: 5 }, () => new AnnalsBackend(db(), { namespaceId }))
      const created = await Promise.all(Array.from({ length: 120 }, () => create(backends[0])))
      const claimed: string[] = []
      await Promise.all(
        Array.from({ length: 50 }, async (_, i) => {
          const [backend, workerId] = [backends[i % 5], `worker-${i}`]
          for (let run = await tryClaim(backend, workerId); run; run = await tryClaim(backend, workerId)) {
            expect(run).toMatchObject({ status: 'running', workerId, attempts: 1 })
            claimed.push(run.id)
          }
        }),
      )
      expect(claimed.toSorted()).toEqual(created.map(({ id }) => id).toSorted())
    })

    test('after its lease has expired a run belongs to the next worker, and the first one is refused', async () => {
      const advance = stopClock()
      const backend = newBackend()
      const first = await createAndClaim(backend)
      const attempt = await begin(backend, first.id)
      advance(LEASE_MS - 1)
      expect(await tryClaim(backend)).toBeNull()
      advance(1)
      const second = await tryClaim(backend)
      expect(second).toMatchObject({ id: first.id, attempts: 2, workerId: OTHER, startedAt: first.startedAt })
      const stepAttemptId = attempt.id
      await expect(backend.extendWorkflowRunLease({ ...owned(first), leaseDurationMs: 1 })).rejects.toThrow(
        'Failed to extend lease for workflow run',
      )
      await expect(begin(backend, first.id)).rejects.toThrow('Failed to create step attempt')
      await expect(
        backend.completeStepAttempt({ ...owned(first), stepAttemptId, output: 1 }),
      ).rejects.toThrow('Failed to mark step attempt completed')
      await expect(backend.completeWorkflowRun({ ...owned(first), output: 1 })).rejects.toThrow(
        'Failed to mark workflow run completed',
      )
      const done = await backend.completeWorkflowRun({ ...owned(first, OTHER), output: 2 })
      expect(done).toMatchObject({ status: 'completed', output: 2, availableAt: null })
      expect(await tryClaim(backend)).toBeNull()
    })

    test('a heartbeat keeps the lease', async () => {
      const advance = stopClock()
      const backend = newBackend()
      const run = await createAndClaim(backend)
      advance(LEASE_MS - 1)
      await backend.extendWorkflowRunLease({ ...owned(run), leaseDurationMs: LEASE_MS })
      advance(LEASE_MS - 1)
      expect(await tryClaim(backend)).toBeNull()
      advance(1)
      expect((await tryClaim(backend))?.id).toBe(run.id)
    })

    test('a sleeping run belongs to nobody until its time', async () => {
      const advance = stopClock()
      const backend = newBackend()
      const run = await createAndClaim(backend)
      const availableAt = new Date(Date.now() + 5_000)
      const asleep = await backend.sleepWorkflowRun({ ...owned(run), availableAt })
      expect(asleep).toMatchObject({ status: 'running', workerId: null, availableAt })
      await expect(begin(backend, run.id)).rejects.toThrow('Failed to create step attempt')
      await expect(backend.sleepWorkflowRun({ ...owned(run), availableAt })).rejects.toThrow(
        'Failed to sleep workflow run',
      )
      advance(4_999)
      expect(await tryClaim(backend)).toBeNull()
      advance(1)
      expect((await tryClaim(backend))?.id).toBe(run.id)
    })

    test('runs whose deadline has passed fail at the next claim, also while they sleep', async () => {
      const advance = stopClock()
      const backend = newBackend()
      const deadlineAt = new Date(Date.now() + 1_000)
      const sleeping = await createAndClaim(backend, { deadlineAt })
      await backend.sleepWorkflowRun({ ...owned(sleeping), availableAt: new Date(Date.now() + YEAR_MS) })
      const pending = await create(backend, { deadlineAt })
      const canceled = await create(backend, { deadlineAt })
      await backend.cancelWorkflowRun({ workflowRunId: canceled.id })
      const free = await create(backend)
      advance(1_000)
      expect((await claim(backend)).id).toBe(free.id)
      for (const { id } of [sleeping, pending]) {
        expect(await backend.getWorkflowRun({ workflowRunId: id })).toMatchObject({
          status: 'failed',
          error: { message: 'Workflow run deadline exceeded' },
          workerId: null,
          availableAt: null,
        })
      }
      expect(await backend.countWorkflowRuns()).toMatchObject({ failed: 2, canceled: 1, running: 1 })
    })
  })

  describe('ends', () => {
    test('a failed run is tried again after growing delays, and fails in the end', async () => {
      const advance = stopClock()
      const backend = newBackend()
      const { id } = await create(backend)
      for (const delayMs of [1_000, 2_000, 3_000]) {
        const run = await claim(backend)
        const failed = await backend.failWorkflowRun({
          ...owned(run),
          error: { message: 'no' },
          retryPolicy: RETRY,
        })
        expect(failed).toMatchObject({
          status: 'pending',
          error: { message: 'no' },
          workerId: null,
          startedAt: null,
          availableAt: new Date(Date.now() + delayMs),
        })
        expect(await tryClaim(backend)).toBeNull()
        advance(delayMs)
      }
      const last = await claim(backend)
      expect(last).toMatchObject({ id, attempts: 4 })
      const end = { ...owned(last), error: { message: 'never' }, retryPolicy: RETRY }
      expect(await backend.failWorkflowRun(end)).toMatchObject({ status: 'failed', availableAt: null })
      await expect(backend.failWorkflowRun(end)).rejects.toThrow('Failed to mark workflow run failed')
      advance(YEAR_MS)
      expect(await tryClaim(backend)).toBeNull()
    })

    test('a run is not tried again after its deadline', async () => {
      stopClock()
      const backend = newBackend()
      const run = await createAndClaim(backend, { deadlineAt: new Date(Date.now() + 1_000) })
      const failed = await backend.failWorkflowRun({
        ...owned(run),
        error: { message: 'no' },
        retryPolicy: RETRY,
      })
      expect(failed).toMatchObject({ status: 'failed', error: { message: 'no' } })
    })

    test('a run is scheduled again after a failed step', async () => {
      const advance = stopClock()
      const backend = newBackend()
      const run = await createAndClaim(backend)
      const availableAt = new Date(Date.now() + 500)
      const params = { error: { message: 'step' }, availableAt }
      await expect(
        backend.rescheduleWorkflowRunAfterFailedStepAttempt({ ...owned(run, OTHER), ...params }),
      ).rejects.toThrow('Failed to reschedule workflow run after failed step attempt')
      expect(
        await backend.rescheduleWorkflowRunAfterFailedStepAttempt({ ...owned(run), ...params }),
      ).toMatchObject({ status: 'pending', ...params, workerId: null, startedAt: null })
      advance(500)
      expect(await tryClaim(backend)).toMatchObject({ id: run.id, attempts: 2 })
    })

    test('a canceled run is never claimed, and its worker is refused', async () => {
      const backend = newBackend()
      const run = await createAndClaim(backend)
      const canceled = await backend.cancelWorkflowRun({ workflowRunId: run.id })
      expect(canceled).toMatchObject({ status: 'canceled', workerId: null, availableAt: null })
      expect(await backend.cancelWorkflowRun({ workflowRunId: run.id })).toEqual(canceled)
      await expect(backend.completeWorkflowRun({ ...owned(run), output: 1 })).rejects.toThrow('Failed to')
      await expect(begin(backend, run.id)).rejects.toThrow('Failed to')
      const pending = await create(backend)
      await backend.cancelWorkflowRun({ workflowRunId: pending.id })
      expect(await tryClaim(backend)).toBeNull()
    })

    test('a run that has ended or does not exist is not canceled', async () => {
      const backend = newBackend()
      const run = await createAndClaim(backend)
      await backend.completeWorkflowRun({ ...owned(run), output: null })
      await expect(backend.cancelWorkflowRun({ workflowRunId: run.id })).rejects.toThrow(
        `Cannot cancel workflow run ${run.id} with status completed`,
      )
      const workflowRunId = randomUUID()
      await expect(backend.cancelWorkflowRun({ workflowRunId })).rejects.toThrow('does not exist')
    })
  })

  describe('step attempts', () => {
    test('a step attempt is found by its id, and ends once', async () => {
      const backend = newBackend()
      const run = await createAndClaim(backend)
      const attempt = await begin(backend, run.id, { stepName: 'charge' })
      expect(attempt).toMatchObject({ workflowRunId: run.id, stepName: 'charge', status: 'running' })
      expect(await backend.getStepAttempt({ stepAttemptId: attempt.id })).toEqual(attempt)
      expect(await backend.getStepAttempt({ stepAttemptId: randomUUID() })).toBeNull()
      const params = { ...owned(run), stepAttemptId: attempt.id }
      const done = await backend.completeStepAttempt({ ...params, output: { paid: true } })
      expect(done).toMatchObject({ status: 'completed', output: { paid: true }, error: null })
      expect(await backend.completeStepAttempt({ ...params, output: 'again' })).toEqual(done)
      await expect(backend.failStepAttempt({ ...params, error: { message: 'no' } })).rejects.toThrow(
        'Failed to mark step attempt failed',
      )
    })

    test('a failed step attempt keeps its first error', async () => {
      const backend = newBackend()
      const run = await createAndClaim(backend)
      const params = { ...owned(run), stepAttemptId: (await begin(backend, run.id)).id }
      const failed = await backend.failStepAttempt({ ...params, error: { message: 'first' } })
      expect(failed).toMatchObject({ status: 'failed', error: { message: 'first' }, output: null })
      expect(await backend.failStepAttempt({ ...params, error: { message: 'second' } })).toEqual(failed)
      await expect(backend.completeStepAttempt({ ...params, output: 1 })).rejects.toThrow('Failed to')
    })

    test('a step attempt of another run is refused', async () => {
      const backend = newBackend()
      const [one, two] = [await createAndClaim(backend), await createAndClaim(backend)]
      const stepAttemptId = (await begin(backend, one.id)).id
      await expect(backend.completeStepAttempt({ ...owned(two), stepAttemptId, output: 1 })).rejects.toThrow(
        'Failed to mark step attempt completed',
      )
    })

    test('step attempts that begin at the same time are listed in pages of both directions', async () => {
      const backend = newBackend()
      const run = await createAndClaim(backend)
      const begun = await Promise.all(
        Array.from({ length: 7 }, (_, i) => begin(backend, run.id, { stepName: `step-${i}` })),
      )
      const workflowRunId = run.id
      const ids = begun.map(({ id }) => id).toSorted()
      const all = await backend.listStepAttempts({ workflowRunId })
      expect(all.data.map(({ id }) => id)).toEqual(ids)
      const first = await backend.listStepAttempts({ workflowRunId, limit: 3 })
      const second = await backend.listStepAttempts({
        workflowRunId,
        limit: 3,
        after: first.pagination.next!,
      })
      const third = await backend.listStepAttempts({
        workflowRunId,
        limit: 3,
        after: second.pagination.next!,
      })
      const idsOf = (page: { data: readonly StepAttempt[] }): string[] => page.data.map(({ id }) => id)
      expect([first, second, third].flatMap(idsOf)).toEqual(ids)
      expect(third.pagination.next).toBeNull()
      expect(first.pagination.prev).toBeNull()
      const back = await backend.listStepAttempts({
        workflowRunId,
        limit: 3,
        before: third.pagination.prev!,
      })
      expect(back).toEqual(second)
    })
  })

  describe('children', () => {
    test.for(['completed', 'failed', 'canceled'] as const)(
      'a parent that sleeps is due as soon as its child is %s',
      async status => {
        const advance = stopClock()
        const backend = newBackend()
        const { parent, attempt, child } = await family(backend)
        expect(await link(backend, parent, attempt, child)).toMatchObject({ childWorkflowRunId: child.id })
        await backend.sleepWorkflowRun({ ...owned(parent), availableAt: new Date(Date.now() + YEAR_MS) })
        advance(10)
        const running = await claim(backend, OTHER)
        expect(running.id).toBe(child.id)
        expect(await tryClaim(backend)).toBeNull()
        if (status === 'canceled') await backend.cancelWorkflowRun({ workflowRunId: child.id })
        else if (status === 'completed')
          await backend.completeWorkflowRun({ ...owned(child, OTHER), output: 1 })
        else {
          const retryPolicy = { ...RETRY, maximumAttempts: 1 }
          await backend.failWorkflowRun({ ...owned(child, OTHER), error: { message: 'no' }, retryPolicy })
        }
        expect((await claim(backend)).id).toBe(parent.id)
      },
    )

    test('a parent does not sleep if its child has ended before', async () => {
      const backend = newBackend()
      const { parent, attempt, child } = await family(backend)
      await claim(backend, OTHER)
      await backend.completeWorkflowRun({ ...owned(child, OTHER), output: 1 })
      await link(backend, parent, attempt, child)
      const availableAt = new Date(Date.now() + YEAR_MS)
      const asleep = await backend.sleepWorkflowRun({ ...owned(parent), availableAt })
      expect(asleep.availableAt?.getTime()).toBeLessThanOrEqual(Date.now())
      const again = await claim(backend)
      expect(again.id).toBe(parent.id)
      await backend.completeStepAttempt({ ...owned(again), stepAttemptId: attempt.id, output: 1 })
      expect(await backend.sleepWorkflowRun({ ...owned(again), availableAt })).toMatchObject({ availableAt })
    })

    test('a child that is tried again does not wake its parent', async () => {
      const backend = newBackend()
      const { parent, attempt, child } = await family(backend)
      await link(backend, parent, attempt, child)
      const availableAt = new Date(Date.now() + YEAR_MS)
      await backend.sleepWorkflowRun({ ...owned(parent), availableAt })
      await claim(backend, OTHER)
      await backend.failWorkflowRun({
        ...owned(child, OTHER),
        error: { message: 'no' },
        retryPolicy: RETRY,
      })
      expect(await backend.getWorkflowRun({ workflowRunId: parent.id })).toMatchObject({ availableAt })
    })

    test('only a running step attempt of the worker is linked', async () => {
      const backend = newBackend()
      const { parent, attempt, child } = await family(backend)
      await backend.completeStepAttempt({ ...owned(parent), stepAttemptId: attempt.id, output: 1 })
      await expect(link(backend, parent, attempt, child)).rejects.toThrow(
        'Failed to set step attempt child workflow run',
      )
    })
  })

  describe('signals', () => {
    test('a signal reaches all runs that wait for it, and wakes those that sleep', async () => {
      const backend = newBackend()
      const runs = []
      const attempts = []
      for (let i = 0; i < 3; i++) {
        const run = await createAndClaim(backend)
        attempts.push(await beginWait(backend, run.id, 'go / now'))
        await backend.sleepWorkflowRun({ ...owned(run), availableAt: new Date(Date.now() + YEAR_MS) })
        runs.push(run.id)
      }
      const signal = { signal: 'go / now', data: { ok: true }, idempotencyKey: null }
      const { workflowRunIds } = await backend.sendSignal(signal)
      expect(workflowRunIds.toSorted()).toEqual(runs.toSorted())
      for (const { id } of attempts)
        expect(await backend.getSignalDelivery({ stepAttemptId: id })).toEqual({ ok: true })
      const claimed = [await claim(backend), await claim(backend), await claim(backend)]
      expect(claimed.map(({ id }) => id).toSorted()).toEqual(runs.toSorted())
      expect(await backend.sendSignal({ ...signal, data: 'late' })).toEqual({ workflowRunIds: [] })
      expect(await backend.getSignalDelivery({ stepAttemptId: attempts[0].id })).toEqual({ ok: true })
    })

    test('a signal that comes before the sleep is not missed', async () => {
      const backend = newBackend()
      const run = await createAndClaim(backend)
      const attempt = await beginWait(backend, run.id, 'go')
      expect(await backend.getSignalDelivery({ stepAttemptId: attempt.id })).toBeUndefined()
      await backend.sendSignal({ signal: 'go', data: null, idempotencyKey: null })
      expect(await backend.getSignalDelivery({ stepAttemptId: attempt.id })).toBeNull()
      await backend.sleepWorkflowRun({ ...owned(run), availableAt: new Date(Date.now() + YEAR_MS) })
      expect((await claim(backend)).id).toBe(run.id)
    })

    test('a signal with an idempotency key is delivered once, also to later waiters', async () => {
      const backend = newBackend()
      const signal = { signal: 'go', data: 1, idempotencyKey: 'k' }
      expect(await backend.sendSignal(signal)).toEqual({ workflowRunIds: [] })
      const run = await createAndClaim(backend)
      await beginWait(backend, run.id, 'go')
      expect(await backend.sendSignal(signal)).toEqual({ workflowRunIds: [run.id] })
      const later = await beginWait(backend, run.id, 'go')
      expect(await backend.sendSignal(signal)).toEqual({ workflowRunIds: [run.id] })
      expect(await backend.getSignalDelivery({ stepAttemptId: later.id })).toBeUndefined()
    })

    test('a step attempt that has ended waits for no signal', async () => {
      const backend = newBackend()
      const run = await createAndClaim(backend)
      const attempt = await beginWait(backend, run.id, 'go')
      await backend.failStepAttempt({
        ...owned(run),
        stepAttemptId: attempt.id,
        error: { message: 'timeout' },
      })
      const sent = await backend.sendSignal({ signal: 'go', data: 1, idempotencyKey: null })
      expect(sent).toEqual({ workflowRunIds: [] })
    })
  })

  describe('lists', () => {
    test('pages of runs have each run once, for every filter, in both directions', async () => {
      const backend = newBackend()
      for (let i = 0; i < 12; i++) await create(backend, { workflowName: i % 3 === 0 ? 'a/b' : 'c' })
      for (let i = 0; i < 6; i++) {
        const run = await claim(backend)
        if (i % 2 === 0) await backend.completeWorkflowRun({ ...owned(run), output: i })
      }
      const all = (await backend.listWorkflowRuns({})).data
      expect(all.map(({ id }) => id)).toEqual(
        all
          .map(({ id }) => id)
          .toSorted()
          .toReversed(),
      )
      const filters = [
        {},
        { status: 'pending' as const },
        { workflowName: 'c' },
        { status: 'completed' as const, workflowName: 'c' },
        { workflowName: 'none' },
      ]
      for (const filter of filters) {
        const { status, workflowName } = filter as Partial<WorkflowRun>
        const expected = all.filter(
          run =>
            run.status === (status ?? run.status) && run.workflowName === (workflowName ?? run.workflowName),
        )
        const pages = []
        for (let after: string | undefined; ; ) {
          const page = await backend.listWorkflowRuns({ ...filter, limit: 2, ...(after && { after }) })
          pages.push(page)
          if (page.pagination.next === null) break
          after = page.pagination.next
        }
        expect(pages.flatMap(({ data }) => data)).toEqual(expected)
        const last = pages.at(-1)!
        if (pages.length < 2) continue
        const before = last.pagination.prev!
        expect(await backend.listWorkflowRuns({ ...filter, limit: 2, before })).toEqual(pages.at(-2))
      }
    })

    test('runs are counted by status', async () => {
      const backend = newBackend()
      for (const end of ['completed', 'canceled', 'running', 'pending'] as const) {
        if (end === 'pending') await create(backend)
        else {
          const run = await createAndClaim(backend)
          if (end === 'completed') await backend.completeWorkflowRun({ ...owned(run), output: null })
          if (end === 'canceled') await backend.cancelWorkflowRun({ workflowRunId: run.id })
        }
      }
      const counts = { pending: 1, running: 1, completed: 1, failed: 0, canceled: 1 }
      expect(await backend.countWorkflowRuns()).toEqual(counts)
    })

    test('an invalid cursor is refused', async () => {
      const backend = newBackend()
      await expect(backend.listWorkflowRuns({ after: 'x' })).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
      })
      await expect(backend.listWorkflowRuns({ after: 'x', before: 'y' })).rejects.toThrow(
        "Cannot specify both 'after' and 'before' cursors",
      )
    })
  })
})

test('stopping the backend leaves the database open', async () => {
  const db = await open({ memory: true })
  await new AnnalsBackend(db).stop()
  expect(await new AnnalsBackend(db).getWorkflowRun({ workflowRunId: 'none' })).toBeNull()
  await db.close()
})

test('unknown options and an empty namespace are refused', async () => {
  const db = await open({ memory: true })
  expect(() => new AnnalsBackend(db, { namespaceId: '' })).toThrow(/run/)
  expect(() => new AnnalsBackend(db, { namespace: 'x' } as object)).toThrow(/namespace/)
  await db.close()
})
