import { expect, test } from 'vitest'
import { newId } from '../../../src/core/id.ts'
import { RUNS, type Service } from './service.ts'

/** Unknown methods and paths. */
export function testRefusedRequests({ ask, get }: Service): void {
  test.each([
    ['PUT', RUNS, ['GET', 'POST']],
    ['DELETE', `${RUNS}/${newId()}`, ['GET', 'PATCH']],
    ['GET', `${RUNS}/${newId()}/associate-commit`, ['POST']],
    ['POST', `${RUNS}/${newId()}/commit-url`, ['GET']],
    ['POST', '/health', ['GET']],
    ['POST', '/metrics', ['GET']],
    ['POST', '/api/v1/metadata', ['GET']],
    ['POST', '/telemetry/x', ['GET']],
    ['PATCH', `${RUNS}`, ['GET', 'POST']],
  ])('TD4: %s %s is 405', async (method, path, allowed) => {
    const { status, body, headers } = await ask(path, {
      method,
      ...(method === 'GET' ? {} : { body: {} }),
    })
    expect([status, body]).toEqual([405, { detail: expect.any(String) }])
    expect((headers.get('allow') ?? '').split(', ')).toEqual(expect.arrayContaining(allowed))
  })

  test.each(['/api/v1', '/api/v1/nothing', '/telemetry/', '/telemetry/a/b'])('%s is 404', async path => {
    expect((await get(path)).status).toBe(404)
  })
}
