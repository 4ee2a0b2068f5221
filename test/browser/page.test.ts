import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Annals, open } from '../../src/annals.ts'
import { durationText, STATUS_WORDS, timeText } from '../../src/core/vocabulary.ts'
import { deriveIdempotencyKey } from '../../src/ledger/idempotency-key.ts'
import { createProducer, type Producer } from '../../src/ledger/producer.ts'
import type { Run } from '../../src/primitives/run.ts'
import type { ServerOptions } from '../../src/server/options.ts'
import { createServer, type Server } from '../../src/server/server.ts'
import { openChromium } from './chromium.ts'

/** The web page, in a real browser with a real server. */

const opened = await openChromium()
const SCREENSHOTS = process.env['ANNALS_SCREENSHOTS']

// reason: without a browser there is nothing to test; openChromium has printed why there is none
describe.skipIf(opened === undefined)('the page', () => {
  const browser = opened as Browser
  let db: Annals
  let server: Server
  let url: string
  let page: Page
  let complaints: string[]

  beforeEach(async () => {
    db = await open({ memory: true })
    complaints = []
  })
  afterEach(async () => {
    await page.context().close()
    await server.close()
    await db.close()
  })
  afterAll(() => browser.close())

  async function visit(
    path = '/',
    options: ServerOptions = {},
    context: BrowserContextOptions = {},
  ): Promise<void> {
    server = createServer(db, { port: 0, ...options })
    ;({ url } = await server.listen())
    page = await (await browser.newContext({ viewport: { width: 1200, height: 800 }, ...context })).newPage()
    page.on('console', message => {
      if (['error', 'warning'].includes(message.type())) complaints.push(message.text())
    })
    page.on('pageerror', error => complaints.push(String(error)))
    await page.goto(`${url}${path}`)
  }

  async function picture(name: string): Promise<void> {
    if (SCREENSHOTS !== undefined) await page.screenshot({ path: `${SCREENSHOTS}/${name}.png` })
  }

  function producerOf(runId: string): Producer {
    const plan = {
      tenantId: 'default',
      projectId: 'p',
      environmentId: 'test',
      planId: 'plan',
      planVersion: '1',
    }
    return createProducer({ store: db.ledger, registry: db.ledger.registry, runId, ...plan })
  }

  /** Writes a run with two steps. */
  async function makeRun(runId: string, end: 'completed' | 'failed' | 'open' = 'completed'): Promise<void> {
    const run = producerOf(runId)
    await run.runStarted()
    await run.stepStarted('fetch', { url: 'https://example.org' })
    await run.stepCompleted('fetch', { bytes: 1_234 })
    await run.stepStarted('write')
    if (end === 'open') return
    if (end === 'failed') await run.stepFailed('write', new Error('the disk was full'))
    else await run.stepCompleted('write')
    if (end === 'failed') await run.runFailed(new Error('the disk was full'))
    else await run.runCompleted()
  }

  const text = (selector: string): Promise<string> => page.locator(selector).innerText()

  test('shows first steps in an empty store, and the first run without a reload', async () => {
    await visit()
    await page.getByText('No runs yet').waitFor()
    expect(await text('#connection')).toBe('live')
    expect(await text('main')).toContain(`curl ${url}/v1/runs`)
    await picture('empty')
    await makeRun('first-run')
    await page.getByRole('link', { name: 'first-run' }).waitFor()
    await page.getByText('Choose a run').waitFor()
    expect(complaints).toEqual([])
  })

  test('shows events and snapshot of a run, and new events as they arrive', async () => {
    await makeRun('a run / with: ü', 'open')
    await makeRun('another')
    await visit()
    await page.getByRole('link', { name: 'a run' }).click()
    await page.getByRole('cell', { name: 'StepStarted', exact: true }).first().waitFor()
    expect(await page.locator('tbody').last().locator('tr').count()).toBe(4)
    expect(await text('.heading')).toContain('Running')
    expect(await text('section[aria-label=Snapshot]')).toContain('fetch')
    await page.getByText('{"url":"https://example.org"}').click()
    expect(await text('.value[open] pre')).toBe('{\n  "url": "https://example.org"\n}')
    await page.evaluate(() => Object.assign(globalThis, { sameDocument: true }))
    const run = producerOf('a run / with: ü')
    await run.stepCompleted('write', { pages: 3 })
    await run.runCompleted()
    await page.getByRole('cell', { name: 'RunCompleted' }).waitFor()
    await expect.poll(() => text('.heading')).toContain('Completed')
    // The list shows the run index, which is updated a moment later.
    const listed = page.locator('li', { hasText: 'a run' })
    await expect.poll(() => listed.innerText(), { timeout: 15_000 }).toContain('Completed')
    expect(await page.evaluate(() => 'sameDocument' in globalThis), 'no reload').toBe(true)
    await page.getByRole('button', { name: 'Verify the chain' }).click()
    await page.getByText('consistent: 6 events').waitFor()
    await picture('run')
    expect(complaints).toEqual([])
  })

  test('scripts in ids and payloads stay text and do not run', async () => {
    const evil = `<img src=x onerror="globalThis.hacked=1"><script>globalThis.hacked=1</script>`
    const run = producerOf(`run ${evil}`)
    await run.runStarted()
    await run.stepStarted(evil, { [evil]: evil, url: 'javascript:globalThis.hacked=1' })
    await run.stepFailed(evil, new Error(evil))
    await run.runFailed(new Error(evil))
    await db.runs.create({ runId: `plain ${evil}`, tags: [evil] })
    await db.events.append(`plain ${evil}`, evil, { html: evil })
    await visit()
    for (const name of ['run <', 'plain <']) {
      await page.locator('#runs a', { hasText: name }).last().click()
      await page.locator('h2.run-title', { hasText: name }).waitFor()
      await page.locator('td.payload details').first().waitFor()
      for (const details of await page.locator('details').all())
        await details.locator('summary').first().click()
      await page.locator('.value[open] pre').first().waitFor()
      expect(await page.locator('main').innerText()).toContain('onerror=')
    }
    expect(await page.locator('main img, main script, li img, li script').count()).toBe(0)
    expect(await page.evaluate(() => 'hacked' in globalThis)).toBe(false)
    expect(complaints).toEqual([])
  })

  test('its policy blocks every script that is not a file of this server', async () => {
    await visit()
    await page.getByText('No runs yet').waitFor()
    expect(complaints).toEqual([])
    const ran = await page.evaluate<string>(`(() => {
      try {
        document.body.innerHTML = '<img src=x onerror="globalThis.hacked=1">'
      } catch (error) {
        return error.name
      }
      return 'nothing was thrown'
    })()`)
    expect(ran).toBe('TypeError')
    expect(await page.evaluate(() => 'hacked' in globalThis)).toBe(false)
    expect(complaints.join()).toMatch(/TrustedHTML/)
  })

  test('asks for a token if the server needs one, and forgets it on request', async () => {
    await makeRun('guarded')
    const token = 'a-token-for-the-page'
    await visit('/#/runs/guarded', { staticToken: token })
    await page.getByRole('dialog').waitFor()
    await picture('token')
    expect(await page.locator('#runs li').count()).toBe(0)
    await page.getByLabel('A token of this server').fill('a-wrong-token')
    await page.keyboard.press('Enter')
    await expect.poll(() => text('#token-why')).toContain('not known')
    await page.getByLabel('A token of this server').fill(token)
    await page.getByRole('button', { name: 'Use it' }).click()
    await page.getByRole('cell', { name: 'RunCompleted' }).waitFor()
    expect(await text('#connection')).toBe('live')
    await page.getByRole('button', { name: 'Token' }).click()
    await page.getByRole('button', { name: 'Forget it' }).click()
    await expect.poll(() => text('#connection')).toBe('needs a token')
    // The browser reports every 401. There must be no other message.
    expect(complaints.filter(complaint => !complaint.includes('401'))).toEqual([])
  })

  test('can be used with the keyboard alone', async () => {
    await makeRun('older')
    await makeRun('newer')
    await visit()
    await page.getByRole('link', { name: 'older' }).waitFor()
    const focused = (): Promise<string | undefined> =>
      page.evaluate<string | undefined>('document.activeElement?.textContent')
    await page.keyboard.press('Tab')
    expect(await focused()).toBe('Skip to the run')
    await page.locator('#runs a').first().focus()
    await page.keyboard.press('ArrowDown')
    expect(await focused()).toContain('older')
    await page.keyboard.press('ArrowUp')
    expect(await focused()).toContain('newer')
    await page.keyboard.press('Enter')
    await page.locator('h2.run-title').waitFor()
    await expect.poll(focused).toBe('newer')
    expect(await page.locator('a[aria-current]').innerText()).toContain('newer')
    expect(complaints).toEqual([])
  })

  test('reconnects after the server was away, and shows everything that happened meanwhile', async () => {
    await makeRun('before')
    // Without a short timeout, closing would wait for the page's open stream.
    await visit('/#/runs/before', { closeTimeoutMs: 200 })
    await page.getByRole('cell', { name: 'RunCompleted' }).waitFor()
    const { port } = new URL(url)
    await server.close()
    await expect.poll(() => text('#connection')).not.toBe('live')
    await makeRun('meanwhile', 'failed')
    server = createServer(db, { port: Number(port) })
    await server.listen()
    await page.getByRole('link', { name: 'meanwhile' }).waitFor({ timeout: 20_000 })
    expect(await text('#connection')).toBe('live')
    // The browser reports failed connections and the 503 of a closing server.
    expect(complaints.filter(complaint => !/net::ERR_|503/.test(complaint))).toEqual([])
  })

  test('filters the list by status and shows older runs on request', async () => {
    for (let i = 0; i < 60; i++) await db.runs.create({ runId: `run-${i}` })
    await makeRun('the failed one', 'failed')
    await visit('/', {}, { colorScheme: 'dark' })
    await page.getByRole('button', { name: 'Show older runs' }).click()
    await expect.poll(() => page.locator('#runs li').count()).toBe(61)
    await page.getByLabel('Status').selectOption('Failed')
    await expect.poll(() => page.locator('#runs li').count()).toBe(1)
    await page.getByRole('link', { name: 'the failed one' }).click()
    await page.getByText('the disk was full').first().waitFor()
    await picture('dark')
    await page.getByLabel('Status').selectOption('Cancelled')
    await page.getByText('No run has this status').waitFor()
    expect(complaints).toEqual([])
  })

  test('shows the last events of a long run, and earlier ones on request', async () => {
    const run = producerOf('long')
    await run.runStarted()
    for (let i = 0; i < 300; i++) {
      await run.stepStarted(`step-${i}`)
      await run.stepCompleted(`step-${i}`)
    }
    await visit('/#/runs/long')
    await page.getByText('the last 500 of 601').waitFor()
    await page.getByText('the last 200 of 300 steps').waitFor()
    await page.getByText('As JSON').click()
    expect(await page.locator('section[aria-label=Snapshot] pre').innerText()).toContain(
      '"lastEventSeq": 601',
    )
    await page.getByRole('button', { name: 'Show earlier events' }).click()
    await expect.poll(() => page.locator('section[aria-label=Events] tbody tr').count()).toBe(601)
    const first = page.locator('section[aria-label=Events] tbody tr').first()
    expect(await first.innerText()).toContain('RunStarted')
    expect(complaints).toEqual([])
  })

  test('shows and verifies the newest events of a run that has only its own log', async () => {
    await db.runs.create({ runId: 'plain' })
    await db.transaction('plain', async tx => {
      for (let i = 1; i <= 1203; i++) await tx.events.append('note', { n: i })
    })
    await visit('/#/runs/plain')
    await page.getByText('the last 500 of 1203').waitFor()
    const rows = page.locator('section[aria-label=Events] tbody tr')
    expect(await rows.last().innerText()).toContain('{"n":1203}')
    await page.getByRole('button', { name: 'Show earlier events' }).click()
    await expect.poll(() => rows.count()).toBe(1_000)
    expect(await rows.first().innerText()).toContain('{"n":204}')
    await page.getByRole('button', { name: 'Verify the chain' }).click()
    await page.getByText('consistent: 1203 events').waitFor()
    // The page shows the numbers of the API. Those of an event log begin with 0.
    expect(await rows.last().locator('td.number').innerText()).toBe('1202')
    expect(await text('#connection')).toBe('live')
    await db.events.append('plain', 'note', { n: 1204 })
    await expect.poll(() => rows.last().innerText(), { timeout: 15_000 }).toContain('{"n":1204}')
    expect(complaints).toEqual([])
  })

  test('shows all older runs, page by page', async () => {
    for (let i = 0; i < 1_020; i++) await db.runs.create({ runId: `run-${i}` })
    await visit()
    const more = page.getByRole('button', { name: 'Show older runs' })
    const items = page.locator('#runs li')
    for (let shown = 50; shown < 1_020; shown += 50) {
      await expect.poll(() => items.count()).toBe(shown)
      await more.click()
    }
    await expect.poll(() => items.count()).toBe(1_020)
    expect(await more.isVisible()).toBe(false)
    expect(complaints).toEqual([])
  })

  test('uses the words of the vocabulary for statuses, times and durations', async () => {
    for (const runId of ['run-1', 'run-2', 'run-3']) await db.runs.create({ runId })
    await db.runs.pause('run-2')
    await db.runs.fail('run-3', 'no reason')
    await visit()
    await page.getByRole('link', { name: 'run-3' }).waitFor()
    expect(await page.locator('#runs .pill').allInnerTexts()).toEqual(['Failed', 'Paused', 'Running'])
    const words = STATUS_WORDS.filter(({ run }) => run !== undefined && run !== 'Archived').map(
      ({ word }) => word,
    )
    expect(await page.locator('#filter option').allInnerTexts()).toEqual(['all', ...words])
    const { createdAt, updatedAt } = (await db.runs.get('run-1')) as Run
    expect(await page.locator('#runs time').last().innerText()).toBe(timeText(updatedAt))
    await page.getByRole('link', { name: 'run-1' }).click()
    await page.locator('.heading time').waitFor()
    expect(await page.locator('.heading time').innerText()).toBe(timeText(createdAt))
    const lengths = [0, 999, 1_000, 59_949, 60_000, 3_600_000, 90_000_000, 172_800_000, 1e10]
    const shown = await page.evaluate<string[]>(
      `import('/page/view.js').then(({ duration }) => ${JSON.stringify(lengths)}.map(duration))`,
    )
    expect(shown).toEqual(lengths.map(durationText))
    expect(complaints).toEqual([])
  })

  test('fits a small screen', async () => {
    await makeRun('small')
    await visit('/#/runs/small', {}, { viewport: { width: 380, height: 700 } })
    await page.getByRole('cell', { name: 'RunCompleted' }).waitFor()
    await picture('small')
    const overflow = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth')
    expect(overflow).toBeLessThanOrEqual(0)
    expect(complaints).toEqual([])
  })

  test('shows how many events are invalid transitions', async () => {
    await makeRun('twice')
    const [{ runSeq: _, persistedAt: __, ...first }] = await db.ledger.fetchEvents('twice', { limit: 1 })
    const late = { ...first, eventType: 'RunPaused', eventId: '1d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a' }
    await db.ledger.appendEvent({ ...late, idempotencyKey: deriveIdempotencyKey(late) })
    await visit('/#/runs/twice')
    await page.getByText('1 event that no transition allows').waitFor()
    await picture('invalid-events')
    expect(complaints).toEqual([])
  })

  test.each([1_200, 380])(
    '/docs shows every route, and schemas by their links, %i pixels wide',
    async width => {
      await visit('/docs', {}, { viewport: { width, height: 700 } })
      await page.getByText('/v1/runs/{runId}/verification').waitFor()
      const { paths } = (await (await fetch(`${url}/openapi.json`)).json()) as { paths: object }
      const routes = Object.values(paths).flatMap(methods => Object.keys(methods as object))
      expect(await page.locator('details[id]:not([id^=schema-])').count()).toBe(routes.length)
      await page.locator('#appendEvent > summary').click()
      expect(await text('#appendEvent .inside')).toContain('Needs the role writer.')
      expect(await text('#appendEvent .inside')).toContain('IDEMPOTENCY_KEY_MISMATCH')
      await picture(`docs-${width}`)
      await page.locator('#appendEvent').getByRole('link', { name: 'RunEvent', exact: true }).click()
      await expect.poll(() => page.locator('#schema-RunEvent pre').isVisible()).toBe(true)
      const overflow = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth')
      expect(overflow).toBeLessThanOrEqual(0)
      expect(complaints).toEqual([])
    },
  )
})
