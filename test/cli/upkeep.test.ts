import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { deriveIdempotencyKey, open } from '../../src/index.ts'
import { defineLaunch, startLaunch } from '../../src/launch.ts'
import { createServer } from '../../src/server.ts'
import { addRun, annals, makeStore, newFolder } from './annals-command.ts'

const TEN_YEARS_MS = 3_650 * 86_400_000

/** The name and the content of every file in a folder. */
function contents(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(name => statSync(join(folder, name)).isFile())
    .sort()
    .map(
      name =>
        `${name} ${createHash('sha256')
          .update(readFileSync(join(folder, name)))
          .digest('hex')}`,
    )
}

interface Examined {
  readonly ok: boolean
  readonly findings: readonly { readonly name: string; readonly status: string; readonly message: string }[]
}

const examined = async (
  data: string,
  ...more: readonly string[]
): Promise<Examined & { readonly code: number | null }> => {
  const { stdout, code } = await annals(['doctor', '--data', data, '--json', ...more])
  return { ...(JSON.parse(stdout) as Examined), code }
}

/** A store as a killed process leaves it: the commits are in the log and not yet in the data files. */
async function makeKilledStore(): Promise<string> {
  const [folder, copy] = [newFolder(), newFolder()]
  const db = await open({ path: folder })
  await addRun(db, 'nightly-1')
  cpSync(folder, copy, { recursive: true })
  await db.close()
  return copy
}

describe('doctor', () => {
  let data = ''
  beforeAll(async () => {
    data = await makeStore()
  })

  test('reports no problems in an intact store and changes nothing', async () => {
    const before = contents(data)
    const { stdout, code } = await annals(['doctor', '--data', data])
    expect(code).toBe(0)
    expect(stdout).toContain('ok       All data and the log of all tenants were read')
    expect(stdout).toContain('ok       Verified 3 runs of tenant default: all consistent.')
    expect(stdout).toContain('No problems.')
    expect(contents(data)).toEqual(before)
    expect((await examined(data)).findings.map(({ name, status }) => `${name} ${status}`)).toEqual(
      ['space', 'files', 'indexes', 'runs'].map(name => `${name} ok`),
    )
  })

  test('reports a flipped bit as a problem with its file and does not repair it', async () => {
    const folder = newFolder()
    cpSync(data, folder, { recursive: true })
    const [file] = readdirSync(folder).filter(name => name.startsWith('data-'))
    const bytes = readFileSync(join(folder, file))
    bytes[Math.floor(bytes.length / 2)] ^= 1
    writeFileSync(join(folder, file), bytes)
    const before = contents(folder)
    const { ok, findings, code } = await examined(folder)
    expect({ ok, code }).toEqual({ ok: false, code: 1 })
    expect(findings.at(-1)).toMatchObject({ name: 'files', status: 'problem' })
    expect(findings.at(-1)?.message).toContain(file)
    expect(contents(folder)).toEqual(before)
  })

  test('reports a torn end of the log as a warning and leaves it to the next writer', async () => {
    const folder = await makeKilledStore()
    const segment = readdirSync(folder)
      .filter(name => name.startsWith('wal-'))
      .sort()
      .at(-1) as string
    const bytes = readFileSync(join(folder, segment))
    // A byte of the last frame. No later frame marks it as durable.
    let end = bytes.length
    while (bytes[end - 1] === 0) end--
    bytes[end - 1] ^= 0xff
    writeFileSync(join(folder, segment), bytes)
    const before = contents(folder)
    const { ok, findings, code } = await examined(folder)
    expect({ ok, code }).toEqual({ ok: true, code: 0 })
    expect(findings.find(({ name }) => name === 'log')).toMatchObject({ status: 'warning' })
    expect(contents(folder)).toEqual(before)
  })

  test('warns of a commit ahead of the clock and changes nothing', async () => {
    const folder = newFolder()
    const clock = vi.spyOn(Date, 'now').mockReturnValue(Date.now() + TEN_YEARS_MS)
    const db = await open({ path: folder })
    await addRun(db, 'from-ahead')
    await db.close()
    clock.mockRestore()
    const before = contents(folder)
    const { ok, findings, code } = await examined(folder)
    expect({ ok, code }).toEqual({ ok: true, code: 0 })
    const found = findings.find(({ name }) => name === 'clock')
    expect(found).toMatchObject({ status: 'warning' })
    expect(found?.message).toMatch(/is 3649 d 23 h ahead of the clock\.$/)
    expect(contents(folder)).toEqual(before)
    expect((await examined(data)).findings.map(({ name }) => name)).not.toContain('clock')
  })

  test('reports a store that is open elsewhere or missing, with advice', async () => {
    const folder = newFolder()
    const db = await open({ path: folder })
    const locked = await annals(['doctor', '--data', folder])
    await db.close()
    expect(locked.code).toBe(1)
    expect(locked.stdout).toContain('is open in another process')
    const missing = await annals(['doctor', '--data', newFolder()])
    expect(missing.code).toBe(1)
    expect(missing.stdout).toContain('There is no folder')
  })

  test('warns of events that no transition allows', async () => {
    const folder = newFolder()
    const db = await open({ path: folder })
    await addRun(db, 'nightly-1')
    const [first] = await db.ledger.fetchEvents('nightly-1', { limit: 1 })
    const { runSeq: _, persistedAt: __, ...write } = first
    const late = { ...write, eventType: 'RunPaused', eventId: '1d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a' }
    await db.ledger.appendEvent({ ...late, idempotencyKey: deriveIdempotencyKey(late) })
    await db.ledger.projectSnapshot('nightly-1')
    await db.close()
    const { ok, findings } = await examined(folder)
    expect(ok).toBe(true)
    expect(findings.at(-1)).toMatchObject({ name: 'alerts', status: 'warning' })
  })

  test('examines all tenants, or the one that --tenant names', async () => {
    const folder = newFolder()
    const db = await open({ path: folder })
    await addRun(db, 'nightly-1')
    const acme = db.forTenant('acme')
    await addRun(acme, 'nightly-1')
    const [first] = await acme.ledger.fetchEvents('nightly-1', { limit: 1 })
    const { runSeq: _, persistedAt: __, ...write } = first
    const late = { ...write, eventType: 'RunPaused', eventId: '1d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a' }
    await acme.ledger.appendEvent({ ...late, idempotencyKey: deriveIdempotencyKey(late) })
    await db.close()
    const { findings } = await examined(folder)
    expect(findings.find(({ name }) => name === 'runs')?.message).toBe(
      'Verified 2 runs of 2 tenants: all consistent.',
    )
    expect(findings.at(-1)).toMatchObject({ name: 'alerts', status: 'warning' })
    expect(findings.at(-1)?.message).toContain('in run "nightly-1" (tenant acme)')
    const ofOne = await examined(folder, '--tenant', 'default')
    expect(ofOne.findings.map(({ name }) => name)).toEqual(['space', 'files', 'indexes', 'runs'])
    expect(ofOne.findings.at(-1)?.message).toContain('1 run of tenant default')
  })

  test('reports a changed launch log as a problem and unsent telemetry as a warning', async () => {
    const folder = newFolder()
    await (await open({ path: folder })).close()
    const runs = join(folder, 'runs')
    await makeLaunch(runs, 'launch-1', 'http://127.0.0.1:1')
    const sound = await examined(folder)
    expect(sound.ok).toBe(true)
    expect(sound.findings.slice(-2).map(({ name, status }) => `${name} ${status}`)).toEqual([
      'launches ok',
      'telemetry warning',
    ])
    // A log that can't be read is a finding, not a crash.
    mkdirSync(join(runs, 'launch-2', 'events.ndjson'), { recursive: true })
    const unreadable = await annals(['doctor', '--data', folder])
    expect(unreadable.code).toBe(0)
    expect(unreadable.stdout).toContain('The log of launch launch-2 cannot be replayed here')
    expect((await annals(['doctor', '--data', folder, '--server', 'http://127.0.0.1:1'])).code).toBe(2)
    const log = join(runs, 'launch-1', 'events.ndjson')
    writeFileSync(log, readFileSync(log, 'utf8').replace('CLONED_INPUTS', 'CLONED_INPUTZ'))
    const before = contents(folder)
    const { ok, findings } = await examined(folder)
    expect(ok).toBe(false)
    expect(findings.find(({ status }) => status === 'problem')?.message).toContain(
      'The log of launch launch-1 was changed',
    )
    expect(contents(folder)).toEqual(before)
  })
})

/** Makes a launch that ends at once. */
async function makeLaunch(runsFolder: string, runId: string, url: string): Promise<void> {
  const launch = defineLaunch({
    name: 'small',
    version: '1',
    workers: {},
    gates: {},
    nodes: [
      { name: 'a', state: 'CREATED', run: async () => 'CLONED_INPUTS' },
      { name: 'b', state: 'CLONED_INPUTS', run: async () => 'INGESTED' },
      { name: 'c', state: 'INGESTED', run: async () => 'FACTS_READY' },
      { name: 'd', state: 'FACTS_READY', run: async () => 'PLAN_READY' },
      { name: 'e', state: 'PLAN_READY', run: async () => 'DRAFTING' },
      { name: 'f', state: 'DRAFTING', run: async () => 'DRAFT_READY' },
      { name: 'g', state: 'DRAFT_READY', run: async () => 'LINKING' },
      { name: 'h', state: 'LINKING', run: async () => 'VALIDATING' },
      { name: 'i', state: 'VALIDATING', run: async () => 'READY_FOR_PR' },
      { name: 'j', state: 'FIXING', run: async () => 'VALIDATING' },
      { name: 'k', state: 'READY_FOR_PR', run: async () => 'PR_OPENED' },
      { name: 'l', state: 'PR_OPENED', run: async () => 'DONE' },
    ],
  })
  const telemetry = { url, sleep: async () => undefined }
  const run = await startLaunch(launch, { runsFolder, runId, telemetry, warn: () => undefined })
  await run.result
}

describe('telemetry flush', () => {
  test('sends the outboxes, prints counts, and exits with 1 while records remain', async () => {
    const runs = newFolder()
    await makeLaunch(runs, 'launch-1', 'http://127.0.0.1:1')
    const away = await annals(['telemetry', 'flush', '--runs', runs, '--url', 'http://127.0.0.1:1', '--json'])
    expect(away.code).toBe(1)
    expect(JSON.parse(away.stdout)).toMatchObject({ ok: false })
    {
      await using db = await open({ memory: true })
      await using server = createServer(db, { port: 0 })
      const { url } = await server.listen()
      const sent = await annals(['telemetry', 'flush', '--runs', runs], {
        env: { TELEMETRY_API_URL: url },
      })
      expect(sent.code).toBe(0)
      expect(sent.stdout).toMatch(/^launch-1 +\d+ +0 +0$/m)
      const again = await annals(['telemetry', 'flush', '--runs', runs, '--url', url])
      expect(again).toMatchObject({ code: 0, stdout: '', stderr: `no telemetry is waiting in ${runs}\n` })
    }
  }, 120_000)

  test('without an address names --url and exits with 2', async () => {
    const { code, stderr } = await annals(['telemetry', 'flush'])
    expect(code).toBe(2)
    expect(stderr).toContain('--url http://127.0.0.1:8765, or TELEMETRY_API_URL')
  })
})

describe('bench', () => {
  test('prints its measurements and removes its files', async () => {
    const dir = newFolder()
    mkdirSync(dir)
    const { stdout, code } = await annals(['bench', '--dir', dir, '--seconds', '1', '--json'])
    expect(code).toBe(0)
    const { results } = JSON.parse(stdout) as {
      results: readonly { name: string; perSecond: number; p50Us: number }[]
    }
    expect(results.map(({ name }) => name)).toEqual([
      'append, durable',
      'append, durable',
      'append, relaxed',
      'ledger record, durable',
      'get',
    ])
    for (const { perSecond, p50Us } of results) {
      expect(perSecond).toBeGreaterThan(10)
      expect(p50Us).toBeGreaterThan(0)
    }
    expect(readdirSync(dir)).toEqual([])
    expect((await annals(['bench', '--dir', join(dir, 'no')])).code).toBe(2)
    expect((await annals(['bench', '--seconds', '0'])).code).toBe(2)
  })
})

describe('completion', () => {
  const completed = (script: string, ...words: readonly string[]): readonly string[] => {
    const program = `source ${script}; COMP_WORDS=(annals ${words.map(word => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}; _annals; echo "\${COMPREPLY[@]}"`
    return execFileSync('bash', ['-c', program], { encoding: 'utf8' }).trim().split(/\s+/)
  }

  test('bash completes commands, options and choices', async () => {
    const { stdout, code } = await annals(['completion', 'bash'])
    expect(code).toBe(0)
    const script = `${newFolder()}.bash`
    writeFileSync(script, stdout)
    execFileSync('bash', ['-n', script])
    expect(completed(script, 'ver')).toEqual(['verify', 'verify-bundle'])
    expect(completed(script, 'runs', '--st')).toEqual(['--status'])
    expect(completed(script, 'completion', '')).toEqual(['bash', 'zsh', 'fish', '--help'])
    expect(completed(script, 'telemetry', 'fl')).toEqual(['flush'])
    expect(completed(script, 'show', 'some-run', '--j')).toEqual(['--json'])
  })

  test.each(['zsh', 'fish'])('%s has every command', async shell => {
    const { stdout, code } = await annals(['completion', shell])
    expect(code).toBe(0)
    for (const name of ['runs', 'verify-bundle', 'telemetry', '--help'.slice(2)])
      expect(stdout).toContain(name)
  })

  test('for an unknown shell exits with 2', async () => {
    const { code, stderr } = await annals(['completion', 'tcsh'])
    expect(code).toBe(2)
    expect(stderr).toContain('bash, zsh, fish')
  })
})

test.each(['doctor', 'bench', 'telemetry flush', 'completion'])('%s --help has examples', async command => {
  const { stdout, code } = await annals([...command.split(' '), '--help'])
  expect(code).toBe(0)
  expect(stdout).toContain(`Examples:\n  annals ${command}`)
})
