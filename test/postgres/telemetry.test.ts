import { describe, expect, test } from 'vitest'
import { openPostgres } from '../../src/postgres.ts'
import type { NewRun } from '../../src/telemetry/run-record.ts'
import { newRun } from '../server/telemetry-suite/service.ts'
import { testTelemetry } from '../server/telemetry-suite.ts'
import { CONNECTION_STRING, dropSchema, newSchema } from './schema.ts'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('on PostgreSQL', () => {
  testTelemetry(
    'PostgreSQL',
    async () => {
      const schema = newSchema()
      const db = await openPostgres({ connectionString: CONNECTION_STRING, schema })
      return {
        db,
        async close() {
          await db.close()
          await dropSchema(schema)
        },
      }
    },
    { kind: 'postgres', synchronous: 'durable' },
  )

  test('two servers on one database store an event id once, and each hears of the events of the other', async () => {
    const schema = newSchema()
    await using first = await openPostgres({ connectionString: CONNECTION_STRING, schema })
    await using second = await openPostgres({ connectionString: CONNECTION_STRING, schema })
    const runs = Array.from({ length: 40 }, () => newRun() as unknown as NewRun).map(run => ({
      ...run,
      status: 'running' as const,
    }))
    await second.telemetry.metadata()
    expect((await second.telemetry.metadata()).cache_hit).toBe(true)
    const answers = await Promise.all(
      [first, second].flatMap(db => runs.map(run => db.telemetry.insert([run]))),
    )
    expect(answers.flat().filter(answer => answer === 'created')).toHaveLength(runs.length)
    expect(await second.telemetry.metadata()).toMatchObject({ agent_names: ['agent'], cache_hit: false })
    for (const db of [first, second]) {
      expect(await db.telemetry.totals()).toMatchObject({ total_runs: runs.length, recent_24h: runs.length })
      const listed: unknown[] = []
      for await (const run of db.telemetry.list({ limit: 100, offset: 0 })) listed.push(run)
      expect(listed).toHaveLength(runs.length)
    }
    expect(await first.verifyIndices()).toEqual({ ok: true, problems: [] })
    await dropSchema(schema)
  })
})
