import { expect, test } from 'vitest'
import { type Json, RUNS, type Service } from './service.ts'

/** Responses about many runs: trails, names and counts. */
export function testOverviews({ get, patch, posted }: Service): void {
  test('TD3: /telemetry/{run_id} is the newest run with all its descendants by start_time', async () => {
    const start = (second: number): Json => ({ start_time: `2026-11-15T03:30:0${second}Z` })
    const root = 'trail / ü.1'
    await posted({ run_id: root, output_summary: 'old', ...start(0) })
    await posted({ run_id: 'trail-b', parent_run_id: root, ...start(2) })
    await posted({ run_id: 'trail-c', parent_run_id: 'trail-b', ...start(1) })
    await posted({ run_id: root, output_summary: 'new', ...start(3) })
    const { status, body } = await get(`/telemetry/${encodeURIComponent(root)}`)
    expect(status).toBe(200)
    expect(body['run']).toMatchObject({ run_id: root, output_summary: 'new' })
    expect((body['children'] as Json[]).map(child => child['run_id'])).toEqual(['trail-c', 'trail-b'])
    const missing = await get('/telemetry/no%20such%00run')
    expect([missing.status, missing.body]).toEqual([
      404,
      { error: expect.any(String), run_id: 'no such\0run' },
    ])
  })

  test('TD2: /api/v1/metadata lists and counts names, cached until the next write', async () => {
    await posted({ agent_name: 'meta-a', job_type: 'meta-j' })
    const first = (await get('/api/v1/metadata')).body
    expect(first['cache_hit']).toBe(false)
    expect(first['agent_names']).toContain('meta-a')
    expect(first['job_types']).toContain('meta-j')
    const { agent_names, job_types } = first as Record<string, unknown[]>
    expect(first['counts']).toEqual({ agent_names: agent_names.length, job_types: job_types.length })
    expect((await get('/api/v1/metadata')).body).toEqual({ ...first, cache_hit: true })
    const id = await posted({ agent_name: 'meta-b', job_type: 'meta-j' })
    const second = (await get('/api/v1/metadata')).body
    expect(second['agent_names']).toEqual([...agent_names, 'meta-b'].sort())
    expect(second['cache_hit']).toBe(false)
    expect((await get('/api/v1/metadata')).body['cache_hit']).toBe(true)
    await patch(`${RUNS}/${id}`, { status: 'success' })
    expect((await get('/api/v1/metadata')).body['cache_hit']).toBe(false)
  })

  test('TD5: /metrics counts all runs, by agent, and those of the last day by created_at', async () => {
    const before = (await get('/metrics')).body as Record<string, number>
    await posted({ agent_name: 'counted' })
    await posted({ agent_name: 'counted', created_at: '2020-01-01T00:00:00Z' })
    const { status, body } = await get('/metrics')
    expect(status).toBe(200)
    expect(body).toMatchObject({
      total_runs: before['total_runs'] + 2,
      recent_24h: before['recent_24h'] + 1,
      agents: { counted: 2 },
      performance: { requests: expect.any(Number), mean_ms: expect.any(Number) },
    })
    expect(Object.keys(body)).toEqual(['total_runs', 'agents', 'recent_24h', 'performance'])
  })
}
