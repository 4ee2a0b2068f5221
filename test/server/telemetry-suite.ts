import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Annals } from '../../src/annals.ts'
import { createApp } from '../../src/server/app.ts'
import { testBatches } from './telemetry-suite/batches.ts'
import { testGitCommits } from './telemetry-suite/git-commits.ts'
import { testListing } from './telemetry-suite/listing.ts'
import { testOneRun } from './telemetry-suite/one-run.ts'
import { testOverviews } from './telemetry-suite/overviews.ts'
import { testPosting } from './telemetry-suite/posting.ts'
import { testRefusedRequests } from './telemetry-suite/refused-requests.ts'
import { serviceOf } from './telemetry-suite/service.ts'

export interface SuiteOptions {
  readonly kind: string
  readonly synchronous: string
}

/** The tests of every endpoint of the telemetry service, for any engine. */

export function testTelemetry(
  name: string,
  open: () => Promise<{ db: Annals; close: () => Promise<void> }>,
  { kind, synchronous }: SuiteOptions,
): void {
  describe(`the telemetry service on ${name}`, () => {
    let app: ReturnType<typeof createApp>
    let db: Annals
    let close: () => Promise<void>
    beforeAll(async () => {
      ;({ db, close } = await open())
      app = createApp(db)
    })
    afterAll(() => close())
    const service = serviceOf(() => app)

    test('TD7: /health names the kind of store, never a path', async () => {
      const { status, body } = await service.get('/health')
      expect(status).toBe(200)
      expect(body).toEqual({
        status: 'ok',
        version: expect.stringMatching(/^\d+\.\d+\.\d+/),
        db_path: kind,
        journal_mode: 'wal',
        synchronous,
      })
    })

    describe('POST /api/v1/runs', () => testPosting(service))
    describe('POST /api/v1/runs/batch', () => testBatches(service))
    describe('GET /api/v1/runs', () => testListing(service))
    describe('one run', () => testOneRun(service))
    describe('the commit of a run', () => testGitCommits(service))
    describe('overviews', () => testOverviews(service))
    describe('unknown paths and methods', () => testRefusedRequests(service))

    test('records, indexes and counts agree at the end', async () => {
      expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
      const { total_runs, agents } = await db.telemetry.totals()
      expect(Object.values(agents).reduce((sum, count) => sum + count, 0)).toBe(total_runs)
    })
  })
}
