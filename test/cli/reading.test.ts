import { cpSync } from 'node:fs'
import { beforeAll, describe, expect, test } from 'vitest'
import { createProducer, open, type RunEventRecord } from '../../src/index.ts'
import { PLAN } from '../ledger/run-event.ts'
import { addRun, annals, CONTROL, makeStore, newFolder, start } from './annals-command.ts'

let data = ''
beforeAll(async () => {
  data = await makeStore()
})

const json = async (...args: readonly string[]): Promise<unknown> => {
  const { stdout, stderr, code } = await annals([...args, '--data', data, '--json'])
  expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
  return JSON.parse(stdout)
}

describe('runs', () => {
  test('lists runs newest first, filtered by status and tag, as a table and as JSON', async () => {
    const { stdout, code } = await annals(['runs', '--data', data])
    expect(code).toBe(0)
    const lines = stdout.trimEnd().split('\n')
    expect(lines[0]).toMatch(/^RUN +STATUS +CREATED +UPDATED +TAGS +PARENT$/)
    expect(lines.slice(1).map(line => line.split(/\s+/).slice(0, 2))).toEqual([
      ['agent-1', 'Running'],
      ['nightly-2', 'Completed'],
      ['nightly-1', 'Completed'],
    ])
    const listed = (await json('runs', '--status', 'Completed', '--tag', 'nightly')) as { runId: string }[]
    expect(listed.map(({ runId }) => runId)).toEqual(['nightly-1'])
    expect(Object.keys(listed[0]).sort()).toEqual(
      ['completedAt', 'createdAt', 'metadata', 'runId', 'status', 'tags', 'updatedAt'].sort(),
    )
    const below = (await json('runs', '--parent', 'nightly-1')) as { runId: string }[]
    expect(below.map(({ runId }) => runId)).toEqual(['agent-1'])
  })

  test.each(['failed', 'FAILED', 'Failed', 'completed'])(
    'accepts --status %s in upper and lower case',
    async status => {
      const listed = (await json('runs', '--status', status)) as { runId: string }[]
      expect(listed).toHaveLength(status === 'completed' ? 2 : 0)
    },
  )

  test('lists the values of --status after an unknown one', async () => {
    const { code, stderr } = await annals(['runs', '--status', 'done', '--data', data])
    expect(code).toBe(2)
    expect(stderr).toContain(
      "option '--status <status>' argument 'done' is invalid. Allowed choices are Running, Paused, Completed, Failed, Cancelled, Archived.",
    )
    expect((await annals(['runs', '--help'])).stdout).toMatch(/"Running",\s+"Paused",\s+"Completed"/)
  })

  test('shows the status after the last event, even if the writer died before it updated the run index', async () => {
    const [folder, left] = [newFolder(), newFolder()]
    const db = await open({ path: folder })
    await addRun(db, 'before')
    const producer = createProducer({
      ...PLAN,
      store: db.ledger,
      registry: db.ledger.registry,
      runId: 'ended',
    })
    await producer.runStarted()
    await producer.runCompleted()
    cpSync(folder, left, { recursive: true })
    await db.close()
    const { stdout } = await annals(['runs', '--status', 'Completed', '--data', left, '--json'])
    expect((JSON.parse(stdout) as { runId: string }[]).map(({ runId }) => runId)).toEqual(['ended', 'before'])
  })

  test('says when there are more runs and when there are none', async () => {
    const some = await annals(['runs', '--data', data, '--limit', '1'])
    expect(some.stdout.trimEnd().split('\n')).toHaveLength(2)
    expect(some.stderr).toContain('there are more runs: --limit 10')
    const none = await annals(['runs', '--data', data, '--tag', 'nobody'])
    expect(none).toEqual({ code: 0, stdout: '', stderr: 'no such runs\n' })
    expect(await json('runs', '--tag', 'nobody')).toEqual([])
  })
})

describe('show', () => {
  test('prints status, steps, errors and the number of events', async () => {
    const { stdout, code } = await annals(['show', 'nightly-1', '--data', data])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^status +Completed$/m)
    expect(stdout).toMatch(/^plan +nightly 3$/m)
    expect(stdout).toMatch(/^children +agent-1$/m)
    expect(stdout).toMatch(/^ledger +8 events, snapshot [0-9a-f]{12}$/m)
    // The error of an earlier attempt is not shown for a step that succeeded.
    expect(stdout).toMatch(/^parse +Completed +2 +\d+ ms$/m)
    expect(stdout).not.toContain('ERROR')
    const earlier = await annals(['snapshot', 'nightly-1', '--at', '5', '--data', data])
    expect(earlier.stdout).toMatch(/^parse +Failed +1 .* no number/m)
    const again = await annals(['snapshot', 'nightly-1', '--at', '6', '--data', data])
    expect(again.stdout).toMatch(/^parse +Running +2 +attempt 1: no number/m)
    const shown = (await json('show', 'nightly-1')) as { run: object; snapshot: { status: string } }
    expect(Object.keys(shown)).toEqual(['runId', 'run', 'snapshot', 'alerts', 'events', 'children'])
    expect(shown.snapshot.status).toBe('COMPLETED')
  })

  test('shows runs with an own log and runs that are not in the run index', async () => {
    expect((await annals(['show', 'agent-1', '--data', data])).stdout).toMatch(/^own log +3 events$/m)
    const { stdout, code } = await annals(['show', 'unlisted', '--data', data])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^status +not in the run index$/m)
  })
})

describe('events', () => {
  test('prints the events in order, or a range of them', async () => {
    const { stdout, code } = await annals(['events', 'nightly-1', '--data', data])
    expect(code).toBe(0)
    const lines = stdout.trimEnd().split('\n')
    expect(lines.map(line => line.trim().split(/\s+/)[2])).toEqual(
      'RunStarted StepStarted StepCompleted StepStarted StepFailed StepStarted StepCompleted RunCompleted'.split(
        ' ',
      ),
    )
    expect(lines[5]).toContain('parse (attempt 2)')
    const part = await annals([
      'events',
      'nightly-1',
      '--data',
      data,
      '--after',
      '2',
      '--limit',
      '3',
      '--json',
    ])
    const records = part.stdout
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line) as RunEventRecord)
    expect(records.map(({ runSeq }) => runSeq)).toEqual([3, 4, 5])
  })

  test('refuses to follow a folder, because nothing can write to it meanwhile', async () => {
    const { code, stdout, stderr } = await annals(['events', 'nightly-1', '-f', '--data', data])
    expect(code).toBe(0)
    expect(stdout.trimEnd().split('\n')).toHaveLength(8)
    expect(stderr).toContain('To follow a run, start `annals serve`')
  })

  test('prints the own log of a run that is not in the ledger', async () => {
    const { stdout } = await annals(['events', 'agent-1', '--data', data, '--json'])
    const events = stdout
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line) as { payload: { n: number } })
    expect(events.map(({ payload }) => payload.n)).toEqual([1, 2, 3])
    const behind = await annals(['events', 'agent-1', '--data', data, '--json', '--after', '0'])
    expect(behind.stdout.trimEnd().split('\n')).toHaveLength(2)
  })
})

describe('verify, replay, snapshot, traces', () => {
  test('verify reports unchanged runs as consistent', async () => {
    expect((await annals(['verify', '--data', data])).stdout).toBe('consistent  3 runs\n')
    const one = await annals(['verify', 'nightly-1', '--data', data])
    expect(one).toEqual({ code: 0, stdout: 'consistent  nightly-1: 8 events in the ledger\n', stderr: '' })
    expect(await json('verify', 'agent-1')).toEqual({
      ok: true,
      runs: [{ runId: 'agent-1', isValid: true, events: { isValid: true, length: 3 } }],
    })
  })

  test('replay produces the stored snapshot', async () => {
    const { stdout, code } = await annals(['replay', 'nightly-1', '--data', data])
    expect(code).toBe(0)
    expect(stdout).toContain('the same as the stored snapshot, byte for byte (up to event 8)')
    const replayed = (await json('replay', 'nightly-1')) as { isSame: boolean; snapshot: { hash: string } }
    expect(replayed).toMatchObject({ runId: 'nightly-1', isSame: true, storedHash: replayed.snapshot.hash })
  })

  test('snapshot shows the state now, or as of an event', async () => {
    expect(await json('snapshot', 'nightly-1')).toMatchObject({ status: 'COMPLETED', lastEventSeq: 8 })
    const earlier = (await json('snapshot', 'nightly-1', '--at', '5')) as { steps: object[] }
    expect(earlier).toMatchObject({ status: 'RUNNING', lastEventSeq: 5 })
    expect(earlier.steps[1]).toMatchObject({ stepId: 'parse', status: 'FAILED', logicalAttemptId: 1 })
    const beyond = await annals(['snapshot', 'nightly-1', '--at', '9', '--data', data])
    expect(beyond.code).toBe(2)
    expect(beyond.stderr).toContain('has 8 events: there is no event 9')
    const none = await annals(['snapshot', 'agent-1', '--data', data])
    expect(none.code).toBe(3)
    expect(none.stderr).toContain('has no events in the ledger')
  })

  test('traces prints trees', async () => {
    const { stdout } = await annals(['traces', 'agent-1', '--data', data])
    expect(stdout.split('\n')[0]).toMatch(/Z {2}ToolCall {2}\{"toolName":/)
    expect(stdout.split('\n')[1]).toMatch(/Z {4}Thought #plan {2}\{"content":"two results"\}/)
    expect(await json('traces', 'agent-1')).toHaveLength(2)
    expect((await annals(['traces', 'nightly-1', '--data', data])).stderr).toBe('this run has no traces\n')
  })
})

describe('every command', () => {
  const READS = ['show', 'events', 'verify', 'replay', 'snapshot', 'traces']

  test.each(READS)('%s of an unknown run suggests similar ids and exits with 3', async command => {
    const { code, stdout, stderr } = await annals([command, 'nigthly-1', '--data', data])
    expect({ code, stdout }).toEqual({ code: 3, stdout: '' })
    expect(stderr).toContain('there is no run "nigthly-1": did you mean "nightly-1" or "nightly-2"?')
  })

  test.each([...READS, 'runs'])(
    '%s with a misspelt option suggests the right one and exits with 2',
    async command => {
      const { code, stderr } = await annals([command, 'nightly-1', '--dta', data])
      expect(code).toBe(2)
      expect(stderr).toContain('(Did you mean --data?)')
    },
  )

  test.each([...READS, 'runs'])('%s --help prints examples and exits with 0', async command => {
    const { code, stdout } = await annals([command, '--help'])
    expect(code).toBe(0)
    expect(stdout).toContain(`Usage: annals ${command}`)
    expect(stdout).toContain(`Examples:\n  annals ${command}`)
  })

  test('a missing store, a misspelt command and an invalid number exit with 4, 2 and 2, with advice', async () => {
    const missing = await annals(['runs', '--data', newFolder()])
    expect(missing.code).toBe(4)
    expect(missing.stderr).toContain('Name its folder with --data')
    const misspelt = await annals(['rnus'])
    expect(misspelt.code).toBe(2)
    expect(misspelt.stderr).toContain('(Did you mean runs?)')
    const number = await annals(['runs', '--limit', '-3', '--data', data])
    expect(number.code).toBe(2)
    expect(number.stderr).toContain('--limit must be a whole number, 1 or more')
    expect((await annals([])).code).toBe(2)
    expect((await annals(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })

  test('control characters in payloads are escaped', async () => {
    const args = [
      ['runs'],
      ['show', 'nightly-1'],
      ['events', 'nightly-1'],
      ['events', 'agent-1'],
      ['snapshot', 'nightly-1'],
      ['traces', 'agent-1'],
    ]
    for (const command of args) {
      for (const more of [[], ['--json']]) {
        const { stdout, code } = await annals([...command, ...more, '--data', data])
        expect(code).toBe(0)
        expect(stdout, command.join(' ')).not.toMatch(CONTROL)
      }
    }
    const { stdout } = await annals(['events', 'nightly-1', '--data', data, '--limit', '1'])
    expect(stdout).toContain('\\u001b[2J\\u001b]0;owned\\u0007\\u009b31m\\u202eevil')
    // JSON keeps every character.
    const text = await annals(['events', 'nightly-1', '--data', data, '--limit', '1', '--json'])
    const { payload } = JSON.parse(text.stdout) as { payload: { note: string } }
    expect(payload.note).toContain('\u001b[2J')
  })

  test('a reader that closes the pipe early causes no error', async () => {
    const folder = newFolder()
    const db = await open({ path: folder, durability: 'relaxed' })
    for (let n = 0; n < 3_000; n++) await db.events.append('long', 'note', { n, text: 'x'.repeat(200) })
    await db.close()
    const { child, ended } = start(['events', 'long', '--data', folder])
    child.stdout?.once('data', () => child.stdout?.destroy())
    const { stderr } = await ended
    expect(stderr).toBe('')
  })
})
