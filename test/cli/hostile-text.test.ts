import { mkdirSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Launch } from '../../src/launch.ts'
import { annals, makeStore, newFolder, PROGRAM, start } from './annals-command.ts'

/** Text from arguments, stores and servers reaches the terminal as visible characters and can't begin a new line. */

/** One text of each kind, by its effect on a terminal. */
const KINDS: Readonly<Record<string, string>> = {
  'begins a line': '\nforged: all is well\nforged again',
  'draws over the line': '\rforged\b\b',
  'clears the screen': '\u001b[2J',
  'sets the title': '\u001b]0;owned\u0007',
  'is an escape sequence in C1': '\u009b31m\u0085\u0090',
  'is deleted': '\u007f',
  'turns the direction': '\u061c\u200e\u200f\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069',
  'takes no room': '\u200b\u200c\u200d\u2060\u2064\ufeff\u00ad\u034f\u115f\u180e\u3164\ufe00',
  'separates lines': '\u2028\u2029',
  'hides a text': '\u{e0041}\u{e007f}\u{e0100}',
  annotates: '\ufff9\ufffb',
}
const HOSTILE = `x${Object.values(KINDS).join('y')}z`

/** A second definition, so that the test does not use the program's own. */
const UNSAFE =
  /[\0-\x09\x0b-\x1f\x7f-\x9f]|\u00ad|\u034f|\u061c|\u115f|\u180e|[\u200b-\u200f\u2028-\u202e\u2060-\u206f]|\u3164|[\ufe00-\ufe0f]|\ufeff|[\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/u

let data = ''
let server: Server
let url = ''
beforeAll(async () => {
  data = await makeStore()
  server = createServer((request, response) => {
    request.resume()
    const problem = {
      type: 'x',
      title: HOSTILE,
      status: 409,
      detail: HOSTILE,
      code: 'CONFLICT',
      requestId: 'x',
    }
    const run = {
      ...{ runId: HOSTILE, status: HOSTILE, tags: [HOSTILE], parentRun: HOSTILE, error: HOSTILE },
      ...{ metadata: { [HOSTILE]: HOSTILE }, createdAt: 0, updatedAt: 0 },
    }
    const isList = request.url?.startsWith('/v1/runs?') === true
    response.writeHead(isList ? 200 : 409, { 'Content-Type': 'application/json' })
    response.end(JSON.stringify(isList ? { runs: [run] } : problem))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => new Promise(resolve => server.close(resolve)))

/** Arguments with `%` in place of the hostile text. */
const TYPED: readonly string[] = [
  '%',
  'help %',
  'token %',
  'telemetry %',
  'runs %',
  'runs --%',
  'runs --%=%',
  'runs -%',
  ...['--status %', '--status=%', '--limit %', '--tag %', '--parent %', '--tenant %'].map(
    more => `runs ${more}`,
  ),
  ...['show', 'events', 'verify', 'replay', 'resume', 'snapshot', 'traces', 'export'].map(
    name => `${name} %`,
  ),
  'snapshot nightly-1 --at %',
  'events nightly-1 --after %',
  'export nightly-1 -o /nowhere/%',
  'resume nightly-1 --launch %',
  'resume nightly-1 --runs % --launch /nowhere/%.ts',
  'import %',
  'verify-bundle %',
  'verify-bundle % --json',
  'token create --role %',
  'token create --expires %',
  'token revoke %',
  'completion %',
  'bench --dir %',
  'bench --seconds %',
  'telemetry flush --runs % --url http://127.0.0.1:1',
  'telemetry flush --url %',
  'serve --port %',
  'serve --port 0 --host %',
  'serve --launch %',
  'demo --server %',
  'demo-worker --%',
]

function expectHarmless(outcome: { readonly stdout: string; readonly stderr: string }): void {
  for (const text of [outcome.stdout, outcome.stderr]) {
    const [found] = UNSAFE.exec(text) ?? []
    expect(found === undefined ? undefined : JSON.stringify(found), text).toBeUndefined()
    expect(text).not.toMatch(/^forged/m)
  }
}

const words = (command: string): readonly string[] =>
  command.split(' ').map(word => word.replaceAll('%', HOSTILE))

describe('hostile text in arguments is harmless', () => {
  test.each(TYPED)('annals %s', async command => {
    const takesStore = /^(runs|show|events|verify|replay|resume|snapshot|traces|export|token|serve)\b/.test(
      command,
    )
    const isCommand = takesStore && !command.startsWith('token %') && !command.startsWith('serve')
    const outcome = await annals([...words(command), ...(isCommand ? ['--data', data] : [])])
    expectHarmless(outcome)
    expect(outcome.code, outcome.stderr).not.toBe(70)
  })

  test.each(['runs', 'show x', 'doctor', 'import -', 'telemetry flush --url http://127.0.0.1:1'])(
    'annals %s, in the name of the folder',
    async command => {
      const outcome = await annals([...words(command), '--data', join(newFolder(), HOSTILE)])
      expectHarmless(outcome)
      expect(outcome.code, outcome.stderr).not.toBe(70)
    },
  )

  test('annals serve, in the name of the folder, and commands that ask its server', async () => {
    const folder = `${newFolder()}${HOSTILE}`
    const serving = start(['serve', '--port', '0', '--data', folder])
    await serving.printed('Ctrl-C stops it.')
    expectHarmless(await annals(['runs', '--data', folder]))
    const held = await annals(['serve', '--port', '0', '--data', folder])
    expect(held.code).toBe(4)
    expectHarmless(held)
    serving.child.kill('SIGTERM')
    expectHarmless(await serving.ended)
  })

  test.each(['ANNALS_SERVER', 'ANNALS_DATA', 'ANNALS_TENANT', 'ANNALS_TOKEN', 'ANNALS_POSTGRES'])(
    'in %s',
    async name => {
      const env = { [name]: HOSTILE, ...(name === 'ANNALS_TOKEN' ? { ANNALS_SERVER: url } : {}) }
      const outcome = await annals(['runs'], { env })
      expectHarmless(outcome)
      expect(outcome.code, outcome.stderr).not.toBe(70)
    },
  )
})

describe('hostile text from a server is harmless', () => {
  const ASKED = [
    'show x',
    'events x',
    'verify x',
    'replay x',
    'snapshot x',
    'traces x',
    'export x',
    'resume x',
  ]
  test.each([
    ...ASKED,
    'runs',
    'runs --json',
    'verify',
    'token list',
    'token create',
    'token revoke x',
    'demo',
  ])('to annals %s', async command => {
    const outcome = await annals([...words(command), '--server', url])
    expectHarmless(outcome)
    expect(outcome.code, outcome.stderr).not.toBe(70)
  })
})

test('hostile text in the error of a worker is harmless', async () => {
  const folder = newFolder()
  mkdirSync(folder)
  const module = join(folder, 'launch.mjs')
  const library = pathToFileURL(join(PROGRAM, '..', '..', 'launch.js')).href
  writeFileSync(
    module,
    `import { defineLaunch, defineWorker } from ${JSON.stringify(library)}
const work = defineWorker({ run: () => { throw new Error(${JSON.stringify(HOSTILE)}) } })
export const launch = defineLaunch({
  name: 'hostile', version: '1', workers: { work }, gates: {},
  states: { initial: 'READY', done: 'DONE', failed: 'FAILED', cancelled: 'CANCELLED', states: {
    READY: { kind: 'stable', next: ['DONE'] },
    DONE: { kind: 'terminal' }, FAILED: { kind: 'terminal' }, CANCELLED: { kind: 'terminal' } } },
  nodes: [{ name: 'begin', state: 'READY', run: async ctx => { await ctx.work('work'); return 'DONE' } }],
})
`,
  )
  const { launch } = (await import(module)) as { launch: Launch }
  const { startLaunch } = (await import(library)) as typeof import('../../src/launch.ts')
  const run = await startLaunch(launch, { runsFolder: join(folder, 'runs'), runId: 'hostile-1' })
  expect((await run.result).status).toBe('failed')
  const outcome = await annals(['resume', 'hostile-1', '--launch', module, '--force', '--data', folder])
  expect(outcome.code).toBe(1)
  expect(outcome.stderr).toContain('work: x\\nforged: all is well')
  expectHarmless(outcome)
})

test('JSON output has every stored character', async () => {
  const { stdout } = await annals(['runs', '--json', '--server', url])
  expect(JSON.parse(stdout)).toMatchObject([{ runId: HOSTILE, metadata: { [HOSTILE]: HOSTILE } }])
})
