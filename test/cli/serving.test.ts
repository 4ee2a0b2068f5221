import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { beforeAll, describe, expect, test } from 'vitest'
import { createClient } from '../../src/client.ts'
import { createProducer, open } from '../../src/index.ts'
import { PLAN } from '../ledger/run-event.ts'
import { addRun, annals, makeStore, newFolder, PROGRAM, type Running, start } from './annals-command.ts'

/** Starts a server on a free port. */
async function serve(
  data: string,
  more: readonly string[] = [],
  env: NodeJS.ProcessEnv = {},
): Promise<Running & { readonly url: string }> {
  const running = start(['serve', '--data', data, '--port', '0', ...more], { env })
  await running.printed('Ctrl-C stops it.')
  const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(running.said()) ?? []
  return { ...running, url: url as string }
}

async function stop(running: Running): Promise<void> {
  running.child.kill('SIGTERM')
  expect((await running.ended).code).toBe(0)
}

describe('a store that a server has open', () => {
  let data = ''
  beforeAll(async () => {
    data = await makeStore()
  })

  test('is read through that server, with the same output', async () => {
    const commands = [
      ['runs', '--json'],
      ['show', 'nightly-1', '--json'],
      ['show', 'agent-1', '--json'],
      ['events', 'nightly-1', '--json'],
      ['events', 'agent-1', '--json'],
      ['verify', '--json'],
      ['replay', 'nightly-1', '--json'],
      ['snapshot', 'nightly-1', '--at', '4', '--json'],
      ['traces', 'agent-1', '--json'],
      ['export', 'nightly-1'],
      ['export', 'agent-1'],
    ]
    const expected: string[] = []
    for (const command of commands) expected.push((await annals([...command, '--data', data])).stdout)
    const server = await serve(data)
    for (const [i, command] of commands.entries()) {
      const found = await annals([...command, '--data', data])
      expect(found.code, command.join(' ')).toBe(0)
      expect(found.stdout, command.join(' ')).toBe(expected[i])
      expect(found.stderr).toBe(`${data} is open in another process: asking the server at ${server.url}\n`)
    }
    const named = await annals(['runs', '--json', '--server', server.url])
    expect(named).toEqual({ code: 0, stdout: expected[0], stderr: '' })
    const missing = await annals(['show', 'nigthly-1', '--server', server.url])
    expect(missing.code).toBe(3)
    expect(missing.stderr).toContain('did you mean "nightly-1"')
    const written = await annals(['import', '-', '--data', data], { input: expected[9] })
    expect(written.code).toBe(4)
    expect(written.stderr).toContain('stop that process first')
    await stop(server)
    expect(existsSync(join(data, 'server.json'))).toBe(false)
    expect((await annals(['runs', '--json', '--data', data])).stdout).toBe(expected[0])
  })

  test('is followed live until Ctrl-C, which exits with 130', async () => {
    const folder = newFolder()
    const server = await serve(folder)
    const { ledger, runs } = createClient({ url: server.url })
    await runs.create({ runId: 'live' })
    const producer = createProducer({ ...PLAN, store: ledger, registry: ledger.registry, runId: 'live' })
    await producer.runStarted()
    const following = start(['events', 'live', '-f', '--data', folder])
    await following.printed('RunStarted')
    await producer.stepStarted('fetch')
    await following.printed('StepStarted fetch')
    following.child.kill('SIGINT')
    expect((await following.ended).code).toBe(130)
    await stop(server)
  })

  test('by a process that is not a server exits with 4, with advice', async () => {
    const folder = newFolder()
    const db = await open({ path: folder })
    await addRun(db, 'held')
    // A port on which no server can listen, so that the command does not find a server of this machine.
    writeFileSync(
      join(folder, 'server.json'),
      JSON.stringify({ url: 'http://127.0.0.1:1', pid: process.pid }),
    )
    const { code, stderr } = await annals(['runs', '--data', folder])
    await db.close()
    expect(code).toBe(4)
    expect(stderr).toContain('no server answers at http://127.0.0.1:1')
    expect(stderr).toContain('add --server with its address')
    const tenant = await annals([
      'runs',
      '--server',
      'http://127.0.0.1:1',
      '--tenant',
      'acme',
      '--token',
      'x',
    ])
    expect(tenant.code).toBe(2)
    expect(tenant.stderr).toContain("which shows the data of the token's tenant")
    for (const command of ['runs', 'serve']) {
      expect((await annals([command, '--data', join(folder, 'server.json')])).code, command).toBe(2)
    }
    const nobody = await annals(['runs', '--server', 'http://127.0.0.1:1'])
    expect(nobody.code).toBe(4)
    const both = await annals(['runs', '--postgres', 'postgres://x', '--server', 'http://x'])
    expect(both.code).toBe(2)
  })
})

describe('serve', () => {
  test('refuses a port in use, and a public address without tokens', async () => {
    const server = await serve(newFolder())
    const taken = await annals(['serve', '--data', newFolder(), '--port', new URL(server.url).port])
    expect(taken.code).toBe(4)
    expect(taken.stderr).toContain('choose another port with --port')
    await stop(server)
    const open = await annals(['serve', '--data', newFolder(), '--port', '0', '--host', '0.0.0.0'])
    expect(open.code).toBe(1)
    expect(open.stderr).toContain('annals token create --role admin')
    expect((await annals(['serve', '--port', '70000'])).code).toBe(2)
  })

  test('a token reads the data of its tenant until it is revoked', async () => {
    const folder = newFolder()
    const made = await annals([
      'token',
      'create',
      '--role',
      'admin',
      '--name',
      'ops',
      '--data',
      folder,
      '--json',
    ])
    const admin = JSON.parse(made.stdout) as { id: string; token: string }
    expect(admin).toMatchObject({ role: 'admin', tenant: 'default', name: 'ops' })
    const env = { TELEMETRY_API_AUTH_ENABLED: '1', TELEMETRY_API_AUTH_TOKEN: 'static-token' }
    const server = await serve(folder, [], env)
    const refused = await annals(['runs', '--data', folder])
    expect(refused.code).toBe(4)
    const as = { env: { ANNALS_TOKEN: admin.token } }
    expect(await annals(['runs', '--data', folder, '--json'], as)).toMatchObject({ code: 0, stdout: '[]\n' })
    const reader = await annals(['token', 'create', '--expires', '12h', '--data', folder], as)
    expect(reader.code).toBe(0)
    expect(reader.stdout).toMatch(/^annals_[0-9a-f]{16}_[\w-]{43}\n$/)
    const [id] = /[0-9a-f]{16}/.exec(reader.stdout) ?? []
    const listed = await annals(['token', 'list', '--data', folder], as)
    expect(listed.stdout).toMatch(new RegExp(`^${id} +reader +default`, 'm'))
    expect(listed.stdout).not.toContain(reader.stdout.trim())
    expect((await annals(['token', 'revoke', id as string, '--data', folder], as)).code).toBe(0)
    const useless = await annals(['runs', '--data', folder], { env: { ANNALS_TOKEN: reader.stdout.trim() } })
    expect(useless.code).toBe(4)
    await stop(server)
    const again = await annals(['token', 'revoke', id as string, '--data', folder])
    expect(again.code).toBe(3)
    // The longest allowed lifetime can also be listed.
    const far = await annals(['token', 'create', '--expires', '36500d', '--data', folder])
    expect(far.code).toBe(0)
    const beyond = await annals(['token', 'create', '--expires', '36501d', '--data', folder])
    expect(beyond.code).toBe(2)
    expect(beyond.stderr).toContain('at most 36500d')
    expect((await annals(['token', 'list', '--data', folder])).code).toBe(0)
    expect((await annals(['token', 'create', '--expires', 'soon', '--data', folder])).code).toBe(2)
    expect((await annals(['token', 'create', '--role', 'king', '--data', folder])).code).toBe(2)
  })
})

describe('resume', () => {
  /** Writes a launch module that kills its process at the first attempt. */
  function writeLaunch(folder: string): string {
    mkdirSync(folder, { recursive: true })
    const path = join(folder, 'launch.mjs')
    const library = pathToFileURL(join(PROGRAM, '..', '..', 'launch.js')).href
    writeFileSync(
      path,
      `import { existsSync, writeFileSync } from 'node:fs'
import { defineLaunch, defineWorker } from ${JSON.stringify(library)}
const work = defineWorker({ run: () => {
  if (existsSync(${JSON.stringify(join(folder, 'died'))})) return
  writeFileSync(${JSON.stringify(join(folder, 'died'))}, '')
  process.kill(process.pid, 'SIGKILL')
} })
export const launch = defineLaunch({
  name: 'mortal', version: '1', workers: { work }, gates: {},
  states: { initial: 'READY', done: 'DONE', failed: 'FAILED', cancelled: 'CANCELLED', states: {
    READY: { kind: 'stable', next: ['WORKING'] }, WORKING: { kind: 'transitional', next: ['DONE'], rewindTo: 'READY' },
    DONE: { kind: 'terminal' }, FAILED: { kind: 'terminal' }, CANCELLED: { kind: 'terminal' } } },
  nodes: [
    { name: 'begin', state: 'READY', run: async () => 'WORKING' },
    { name: 'work', state: 'WORKING', run: async ctx => { await ctx.work('work'); return 'DONE' } },
  ],
})
`,
    )
    return path
  }

  /** Starts the launch in a process that is killed in its only step. */
  async function makeDeadLaunch(data: string, module: string): Promise<void> {
    const { spawnSync } = await import('node:child_process')
    const library = pathToFileURL(join(PROGRAM, '..', '..', 'launch.js')).href
    const code = `const { startLaunch } = await import(${JSON.stringify(library)})
const { launch } = await import(${JSON.stringify(pathToFileURL(module).href)})
const run = await startLaunch(launch, { runsFolder: ${JSON.stringify(join(data, 'runs'))}, runId: 'dead-1' })
await run.result`
    const { signal } = spawnSync(process.execPath, ['--input-type=module', '-e', code], { timeout: 20_000 })
    expect(signal).toBe('SIGKILL')
  }

  test('resumes a killed launch in this process and mirrors it to the ledger', async () => {
    const data = newFolder()
    const module = writeLaunch(newFolder())
    await makeDeadLaunch(data, module)
    const without = await annals(['resume', 'dead-1', '--data', data])
    expect(without.code).toBe(1)
    expect(without.stderr).toContain('add --launch with the JavaScript module that exports it')
    const { code, stdout, stderr } = await annals(['resume', 'dead-1', '--launch', module, '--data', data])
    expect(stderr).toContain('WORKING')
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'dead-1: Completed, state DONE\n' })
    const shown = JSON.parse((await annals(['show', 'dead-1', '--data', data, '--json'])).stdout) as {
      snapshot: object
    }
    expect(shown.snapshot).toMatchObject({ status: 'COMPLETED', planId: 'mortal' })
    expect((await annals(['runs', '--data', data])).stdout).toMatch(/^dead-1 +Completed/m)
    const replayed = await annals(['replay', 'dead-1', '--data', data])
    expect(replayed.stdout).toMatch(/launch log: \d+ events, hash chain intact/)
    expect((await annals(['doctor', '--data', data])).stdout).toContain('Verified the logs of 1 launch.')
    const ended = await annals(['resume', 'dead-1', '--launch', module, '--data', data])
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain('has ended')
    const none = await annals(['resume', 'dead-1', '--launch', `${module}.no`, '--data', data])
    expect(none.code).toBe(2)
  })

  test('asks a server that has the launch to resume it', async () => {
    const data = newFolder()
    const module = writeLaunch(newFolder())
    await makeDeadLaunch(data, module)
    const server = await serve(data, ['--launch', module])
    const { code, stdout } = await annals(['resume', 'dead-1', '--data', data])
    expect(code).toBe(0)
    expect(stdout).toContain('the server resumes dead-1')
    const following = start(['events', 'dead-1', '-f', '--server', server.url])
    await following.printed('RunCompleted')
    following.child.kill('SIGINT')
    await following.ended
    await stop(server)
  })

  test('resumes a paused run and refuses others with a reason', async () => {
    const data = newFolder()
    const db = await open({ path: data })
    const producer = createProducer({
      ...PLAN,
      store: db.ledger,
      registry: db.ledger.registry,
      runId: 'ledger-1',
    })
    await producer.runStarted()
    await producer.pause()
    await db.runs.create({ runId: 'index-1' })
    await db.runs.pause('index-1')
    await db.close()
    expect((await annals(['resume', 'ledger-1', '--data', data])).stdout).toBe('ledger-1 resumed\n')
    expect((await annals(['resume', 'index-1', '--data', data])).stdout).toBe('index-1 resumed\n')
    const runs = JSON.parse((await annals(['runs', '--data', data, '--json'])).stdout) as { status: string }[]
    expect(runs.map(({ status }) => status)).toEqual(['Active', 'Active'])
    // The same works while a server has the store open.
    const server = await serve(data)
    const { ledger } = createClient({ url: server.url })
    await createProducer({ ...PLAN, store: ledger, registry: ledger.registry, runId: 'ledger-1' }).pause()
    expect((await annals(['resume', 'ledger-1', '--data', data])).stdout).toBe('ledger-1 resumed\n')
    await stop(server)
    const again = await annals(['resume', 'ledger-1', '--data', data])
    expect(again.code).toBe(1)
    expect(again.stderr).toContain('is Running, not paused. To continue a launch, add --launch MODULE')
    expect((await annals(['resume', 'nobody', '--data', data])).code).toBe(3)
  })
})

/** Runs commands that the demo prints at its end, by default all of them, and returns their output. */
function typed(
  stderr: string,
  cwd: string,
  options: { env?: NodeJS.ProcessEnv; only?: RegExp } = {},
): string {
  const { env = {}, only = /./ } = options
  const hints = stderr
    .slice(stderr.indexOf('Look at the run'))
    .split('\n')
    .slice(1)
    .filter(line => line.startsWith('  ') && !line.includes('in a browser'))
  expect(hints).toHaveLength(6)
  return hints
    .filter(hint => only.test(hint))
    .map(hint => execFileSync('sh', ['-c', hint], { cwd, encoding: 'utf8', env: { ...process.env, ...env } }))
    .join('\n')
}

describe('demo', () => {
  test('starts a server if none is running, and ends it', async () => {
    const data = `${newFolder()} with a space`
    const { code, stdout, stderr } = await start(['demo', '--data', data, '--own']).ended
    expect(code).toBe(0)
    expect(stdout).toContain('using a server for this demo at')
    expect(stdout).toMatch(/consistent: \d+ events, hash chain and snapshot verified/)
    // No process has the store open any more.
    const runs = await annals(['runs', '--data', data, '--json'])
    expect(runs.stderr).toBe('')
    expect(JSON.parse(runs.stdout)).toMatchObject([{ status: 'Completed' }])
    expect(typed(stderr, dirname(data))).toMatch(/^status +Completed$/m)
    expect((await annals(['doctor', '--data', data])).stdout).toContain('Verified the logs of 1 launch.')
    const [{ runId }] = JSON.parse(runs.stdout) as [{ runId: string }]
    const replayed = await annals(['replay', runId, '--data', data])
    expect(replayed.stdout).toMatch(/launch log: \d+ events, state DONE\n$/)
  }, 120_000)

  test('prints commands that find the run with --server', async () => {
    const [served, data] = [newFolder(), newFolder()]
    const { stdout } = await annals(['token', 'create', '--role', 'writer', '--data', served])
    const token = stdout.trim()
    const server = await serve(served, [], {
      TELEMETRY_API_AUTH_ENABLED: '1',
      TELEMETRY_API_AUTH_TOKEN: 'static-token',
    })
    const demo = await start(['demo', '--data', data, '--server', server.url, '--token', token]).ended
    expect(demo).toMatchObject({ code: 0 })
    expect(demo.stderr).not.toContain(token)
    expect(demo.stderr).toContain('with the token in ANNALS_TOKEN')
    // The demos differ only in the options that name the store, which all commands share.
    const shown = typed(demo.stderr, dirname(data), { env: { ANNALS_TOKEN: token }, only: / show / })
    expect(shown).toMatch(/^status +Completed$/m)
    await stop(server)
  }, 120_000)

  test('kills a launch and resumes it, using a running server', async () => {
    const data = newFolder()
    const server = await serve(data)
    // The demo finds the server by itself, on any port.
    const { code, stdout, stderr } = await start(['demo', '--data', data]).ended
    expect({ code, stdout: stdout.slice(-200) }).toMatchObject({ code: 0 })
    expect(stdout).toContain(`using the server at ${server.url}`)
    expect(stdout).toMatch(/kill -9 \d+: the process is gone/)
    expect(stdout).toMatch(/\d+ {2}StepFailed draft\/\w+\/1\n/)
    expect(stdout).toMatch(/\d+ {2}StepCompleted draft\/\w+\/1 \(attempt 2\)\n/)
    expect(stdout).toMatch(/consistent: \d+ events, hash chain and snapshot verified/)
    const [runId] = /demo-\d{8}T\d{6}Z/.exec(stdout) ?? []
    expect(typed(stderr, dirname(data), { only: / show / })).toMatch(/^status +Completed$/m)
    const runs = await annals(['runs', '--data', data, '--json'])
    expect(JSON.parse(runs.stdout)).toMatchObject([{ runId, status: 'Completed', tags: ['launch', 'docs'] }])
    await stop(server)
    const away = await annals(['demo', '--data', data, '--server', 'http://127.0.0.1:1'])
    expect(away.code).toBe(4)
  }, 120_000)
})

test.each(['serve', 'demo', 'resume', 'token create', 'token list', 'token revoke'])(
  '%s --help has examples',
  async command => {
    const { stdout, code } = await annals([...command.split(' '), '--help'])
    expect(code).toBe(0)
    expect(stdout).toContain(`Examples:\n  annals ${command}`)
  },
)
