import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Annals, namespace, open } from '../../src/index.ts'
import { createServer, type Server } from '../../src/server.ts'
import { addRun, annals, newFolder } from './annals-command.ts'

const THERE = namespace({ tenant: 'default', app: 're:search', agent: 'critic', run: 'review-7' })

let db: Annals
let server: Server
let url = ''
let closed = ''
beforeAll(async () => {
  closed = newFolder()
  const folder = newFolder()
  for (const path of [closed, folder]) {
    const store = await open({ path })
    await store.runs.create({ runId: THERE, tags: ['placed'] })
    await addRun(store, 'review-7')
    await store.events.append(THERE, 'note', { n: 1 })
    await store.events.append(THERE, 'note', { n: 2 })
    await store.traces.record(THERE, { type: 'Thought', content: 'hm' })
    // Another scope with the same run id, which is not part of the run.
    await store.events.append('review-7', 'note', { n: 3 })
    await store.close()
  }
  db = await open({ path: folder })
  server = createServer(db, { port: 0 })
  url = (await server.listen()).url
})
afterAll(async () => {
  await server.close()
  await db.close()
})

describe.each([
  ['a folder', () => ['--data', closed]],
  ['a server', () => ['--server', url]],
])('P27: a run in a namespace, by its id, from %s', (_, from) => {
  const json = async (...args: readonly string[]): Promise<unknown> => {
    const { stdout, stderr, code } = await annals([...args, ...from(), '--json'])
    expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
    return JSON.parse(stdout)
  }

  test('is listed and shown with its app and agent', async () => {
    const { stdout } = await annals(['runs', ...from()])
    const [title, line] = stdout.trimEnd().split('\n')
    expect(title).toMatch(/^RUN +APP +AGENT +STATUS/)
    expect(line).toMatch(/^review-7 +re:search +critic +Completed/)
    const shown = await annals(['show', 'review-7', ...from()])
    expect(shown.code).toBe(0)
    expect(shown.stdout).toMatch(/app +re:search\n/)
    expect(shown.stdout).toMatch(/agent +critic\n/)
    expect(await json('show', 'review-7')).toMatchObject({
      run: { runId: 'review-7', app: 're:search', agent: 'critic', tags: ['placed'] },
      snapshot: { status: 'COMPLETED' },
      events: 2,
    })
  })

  test('has its own log, its records and its traces', async () => {
    const records = await annals(['events', 'review-7', ...from(), '--json'])
    expect(records.stdout.trimEnd().split('\n')).toHaveLength(8)
    const own = await annals(['events', 'review-7', '--own', ...from(), '--json'])
    expect(
      own.stdout
        .trimEnd()
        .split('\n')
        .map(line => JSON.parse(line).payload.n),
    ).toEqual([1, 2])
    const traces = await annals(['traces', 'review-7', ...from()])
    expect(traces.stdout).toContain('hm')
  })

  test('can be verified, and exported as a bundle that verifies', async () => {
    expect(await json('verify', 'review-7')).toMatchObject({
      ok: true,
      runs: [{ runId: 'review-7', isValid: true, ledger: { events: 8 }, events: { length: 2 } }],
    })
    const file = join(newFolder(), '..', `review-${from()[0]}.jsonl`)
    expect((await annals(['export', 'review-7', '--output', file, ...from()])).code).toBe(0)
    const verified = await annals(['verify-bundle', file])
    expect(verified.code).toBe(0)
    const data = newFolder()
    await (await open({ path: data })).close()
    expect((await annals(['import', file, '--data', data])).code).toBe(0)
    const again = await annals(['runs', '--data', data, '--json'])
    expect(JSON.parse(again.stdout)).toMatchObject([
      { runId: 'review-7', app: 're:search', agent: 'critic', status: 'Completed' },
    ])
  })
})
