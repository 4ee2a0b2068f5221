import { mkdirSync, rmSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type Annals, open } from '../../src/annals.ts'
import { createClient } from '../../src/client.ts'
import { startLaunch } from '../../src/launch/launches.ts'
import { createLaunchRegistry } from '../../src/server/launch-registry.ts'
import { createServer, type Server } from '../../src/server/server.ts'
import { gateway, newRunsFolder, smallLaunch } from '../launch/small-launch.ts'

/** Launches through a server: only those in its folder, and only for its own tenant. */

const opened: AsyncDisposable[] = []
afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each[Symbol.asyncDispose]()
})

interface Served {
  readonly db: Annals
  readonly server: Server
  readonly runsFolder: string
}

async function serveLaunches(launches: readonly ReturnType<typeof smallLaunch>[]): Promise<Served> {
  const db = await open({ memory: true })
  const runsFolder = newRunsFolder()
  const registry = createLaunchRegistry({ runsFolder, db, definitions: launches, warn: () => undefined })
  const server = createServer(db, { launches: registry })
  opened.push(db, server)
  return { db, server, runsFolder }
}

/** Starts a run and stops it before its end. */
async function stoppedRun({ db, runsFolder }: Served, runId: string): Promise<void> {
  const isAtWork = gateway()
  const work = async (): Promise<void> => isAtWork.open()
  const launch = smallLaunch({
    work,
    node: async ctx => {
      await ctx.work('work')
      await new Promise((_, reject) => ctx.signal.addEventListener('abort', reject))
    },
  })
  const run = await startLaunch(launch, { runsFolder, runId, db, telemetry: false })
  await isAtWork.passed
  expect(await run.stop()).toMatchObject({ status: 'stopped', state: 'WORKING' })
}

function clientOf({ server }: Served, token?: string): ReturnType<typeof createClient> {
  const fetch = (input: string | URL | Request, init?: RequestInit): Promise<Response> =>
    server.fetch(new Request(input, init))
  return createClient({
    url: 'http://localhost',
    fetch,
    retry: { retries: 0 },
    ...(token === undefined ? {} : { token }),
  })
}

describe('launches over HTTP', () => {
  test('are listed, shown, resumed and cancelled', async () => {
    const served = await serveLaunches([smallLaunch({})])
    for (const runId of ['one', 'two']) await stoppedRun(served, runId)
    const { launches } = clientOf(served)
    expect(await launches.list()).toEqual(['one', 'two'])
    expect(await launches.state('one')).toMatchObject({ run_id: 'one', run_state: 'WORKING' })

    await launches.resume('one')
    for await (const { eventType } of served.db.ledger.subscribe({ runId: 'one' })) {
      if (eventType === 'RunCompleted') break
    }
    expect(await launches.state('one')).toMatchObject({ run_state: 'DONE' })
    // The server releases the run a moment after the run has ended.
    await vi.waitFor(() => expect(launches.resume('one')).rejects.toMatchObject({ code: 'ILLEGAL_STATE' }))

    await launches.cancel('two', { reason: 'not needed' })
    expect(await launches.state('two')).toMatchObject({ run_state: 'CANCELLED' })
    expect((await served.db.ledger.projectSnapshot('two')).status).toBe('CANCELLED')
    await expect(launches.cancel('two')).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
  })

  test('without a definition on the server are listed but not resumed; other folders are not listed', async () => {
    const served = await serveLaunches([])
    await stoppedRun(served, 'one')
    const { launches } = clientOf(served)
    expect(await launches.list()).toEqual(['one'])
    await expect(launches.resume('one')).rejects.toMatchObject({ code: 'LAUNCH_UNKNOWN' })
    for (const runId of ['none', '..', 'one/..']) {
      await expect(launches.state(runId), runId).rejects.toMatchObject({
        code: expect.stringMatching(/^RUN_NOT_FOUND|^INVALID/),
      })
    }
  })

  test('are listed page by page, reading only the first line of each log', async () => {
    const served = await serveLaunches([])
    for (const runId of ['a', 'b', 'c']) await stoppedRun(served, runId)
    // Too large to be read at once, so an attempt to read it would fail.
    truncateSync(join(served.runsFolder, 'b', 'events.ndjson'), 3 * 1024 ** 3)
    const page = async (query: string): Promise<unknown> =>
      (await served.server.fetch(new Request(`http://localhost/v1/launches${query}`))).json()
    expect(await page('')).toEqual({ launches: ['a', 'b', 'c'] })
    expect(await page('?limit=2')).toEqual({ launches: ['a', 'b'], next: 'b' })
    expect(await page('?limit=2&after=b')).toEqual({ launches: ['c'] })
    // Launches that are not on the page are not read.
    rmSync(join(served.runsFolder, 'c', 'events.ndjson'))
    mkdirSync(join(served.runsFolder, 'c', 'events.ndjson'))
    expect(await page('?limit=1')).toEqual({ launches: ['a'], next: 'a' })
  })

  test('are not visible to another tenant', async () => {
    const served = await serveLaunches([smallLaunch({})])
    await stoppedRun(served, 'one')
    const { token } = await served.server.tokens.create({ role: 'admin', tenant: 'other' })
    const { launches } = clientOf(served, token)
    expect(await launches.list()).toEqual([])
    const missing = { code: 'RUN_NOT_FOUND' }
    await expect(launches.state('one')).rejects.toMatchObject(missing)
    await expect(launches.resume('one')).rejects.toMatchObject(missing)
    await expect(launches.cancel('one')).rejects.toMatchObject(missing)
    expect(await clientOf(served).launches.state('one')).toMatchObject({ run_state: 'WORKING' })
  })
})
