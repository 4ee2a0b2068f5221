import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { STATUS_WORDS, type StatusWord, statusWordOf, VERDICT } from '../src/core/vocabulary.ts'
import { open } from '../src/index.ts'
import { RUN_STATES } from '../src/launch.ts'
import { STATUSES as RUN_STATUSES } from '../src/primitives/run.ts'
import { TELEMETRY_STATUSES } from '../src/telemetry/model.ts'
import { addRun, annals, newFolder } from './cli/annals-command.ts'

/** The words for people are the same in the code, in the documentation and on the command line. */

const DOCS = readFileSync(new URL('../docs/vocabulary.md', import.meta.url), 'utf8')
const PARTS = ['run', 'snapshot', 'step', 'launch', 'launchState', 'telemetry'] as const

function namesOf(part: (typeof PARTS)[number]): readonly string[] {
  return STATUS_WORDS.flatMap(status => status[part] ?? []).sort()
}

describe('the table of statuses', () => {
  test('has every name of the run index, launches and telemetry', () => {
    expect(namesOf('run')).toEqual([...RUN_STATUSES].sort())
    expect(namesOf('telemetry')).toEqual([...TELEMETRY_STATUSES].sort())
    const { done, failed, cancelled } = RUN_STATES
    expect(namesOf('launchState')).toEqual([done, failed, cancelled].sort())
    expect(namesOf('launch')).toEqual(['cancelled', 'completed', 'failed', 'stopped'])
  })

  test('has every name that the snapshot schema of the HTTP API has', async () => {
    const { createApp } = await import('../src/server.ts')
    const db = await open({ memory: true })
    const answer = await createApp(db).request('http://localhost/openapi.json')
    const { components } = (await answer.json()) as {
      components: {
        schemas: { RunSnapshot: { properties: Record<string, { enum?: string[]; items?: object }> } }
      }
    }
    const { status, steps } = components.schemas.RunSnapshot.properties
    expect([...(status?.enum ?? [])].sort()).toEqual(namesOf('snapshot'))
    const step = steps?.items as { properties: { status: { enum: string[] } } }
    expect([...step.properties.status.enum].sort()).toEqual(namesOf('step'))
    await db.close()
  })

  test('gives each name one word', () => {
    const words = new Map<string, string>()
    for (const status of STATUS_WORDS) {
      for (const name of PARTS.flatMap(part => status[part] ?? [])) {
        expect(words.get(name) ?? status.word, name).toBe(status.word)
        words.set(name, status.word)
        expect(statusWordOf(name).word).toBe(status.word)
      }
    }
    expect(statusWordOf('DRAFTING')).toEqual({ word: 'DRAFTING', tone: 'neutral' })
  })

  test('is the table in docs/vocabulary.md', () => {
    const cell = (name: string | undefined): string => (name === undefined ? ' ' : ` \`${name}\` `)
    const row = (status: StatusWord): string =>
      `| ${status.word} |${PARTS.map(part => cell(status[part])).join('|')}|`
    expect(DOCS.match(/^\| [A-Z][a-z ]+ \|( `\w+` \| | \| ?)+.*$/gm)).toEqual(STATUS_WORDS.map(row))
    for (const verdict of Object.values(VERDICT)) expect(DOCS).toContain(verdict)
  })
})

describe('the command line', () => {
  test('shows one word for the status of a run in every command', async () => {
    const data = newFolder()
    const db = await open({ path: data })
    await addRun(db, 'nightly-1')
    await db.close()
    const bundle = `${data}.bundle`
    await annals(['export', 'nightly-1', '--data', data, '-o', bundle])
    for (const command of [
      ['runs', '--data', data],
      ['show', 'nightly-1', '--data', data],
      ['snapshot', 'nightly-1', '--data', data],
      ['replay', 'nightly-1', '--data', data],
      ['verify-bundle', bundle],
    ]) {
      const { stdout, code } = await annals(command)
      expect(code, command[0]).toBe(0)
      expect(stdout, command[0]).toContain('Completed')
      // Names of the API do not appear.
      expect(stdout, command[0]).not.toMatch(/\b(Active|COMPLETED|RUNNING|SUCCESS|CONSISTENT)\b/)
    }
    const json = await annals(['show', 'nightly-1', '--data', data, '--json'])
    expect(JSON.parse(json.stdout)).toMatchObject({
      run: { status: 'Completed' },
      snapshot: { status: 'COMPLETED' },
    })
  })

  test('accepts the words and the names of the run index for --status', async () => {
    const data = newFolder()
    const db = await open({ path: data })
    await db.runs.create({ runId: 'open-1' })
    await db.close()
    for (const status of ['running', 'Running', 'Active', 'ACTIVE']) {
      const { stdout } = await annals(['runs', '--status', status, '--data', data])
      expect(stdout, status).toMatch(/^open-1 +Running /m)
    }
  })

  test('prints every time in one format', async () => {
    const data = newFolder()
    const db = await open({ path: data })
    await addRun(db, 'nightly-1')
    await db.events.append('agent-1', 'note', null)
    await db.traces.record('agent-1', { type: 'Thought', content: 'hm' })
    await db.close()
    for (const command of [
      ['runs'],
      ['show', 'nightly-1'],
      ['events', 'nightly-1'],
      ['events', 'agent-1'],
      ['traces', 'agent-1'],
    ]) {
      const { stdout } = await annals([...command, '--data', data])
      const times = stdout.match(/\d{4}-\d\d-\d\d\S*/g) ?? []
      expect(times.length, command.join(' ')).toBeGreaterThan(0)
      for (const time of times) expect(time).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    }
  })

  test('states for each bound whether it includes its end', async () => {
    const help = async (command: string): Promise<string> => {
      const { stdout } = await annals([command, '--help'])
      return stdout.replace(/\s+/g, ' ')
    }
    expect(await help('events')).toMatch(/--after <n> only events after number n, without n itself/)
    expect(await help('events')).toMatch(/--limit <n> at most this many events/)
    expect(await help('runs')).toMatch(/--limit <n> at most this many runs/)
    expect(await help('snapshot')).toMatch(/--at <n> as of event n, including it/)
  })
})
