import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { contractProblems } from '../../src/launch/contracts.ts'
import { worstFirst } from '../../src/launch/fix-loop.ts'
import { startLaunch } from '../../src/launch/launches.ts'
import { eventsIn, itemsIn, newRunsFolder, smallLaunch, snapshotIn } from './small-launch.ts'

const runId = 'r1'

describe('gates and fixes', () => {
  /** Issues are lines of an artifact; a fix removes one. */
  const withIssues = (
    lines: string,
    mend: (text: string, message: string) => string,
    runsFolder = newRunsFolder(),
  ) => {
    const launch = smallLaunch({
      work: (_, { artifacts }) => artifacts.write('page', lines).then(() => undefined),
      gate: ({ artifacts }) =>
        artifacts
          .readText('page')
          .split('\n')
          .filter(Boolean)
          .map(line => ({ severity: line.split(' ')[0] as 'error', message: line })),
      mend: async ({ issue }, { artifacts }) => {
        await artifacts.write('page', mend(artifacts.readText('page'), issue.message))
      },
    })
    return { runsFolder, run: startLaunch(launch, { runsFolder, runId }).then(({ result }) => result) }
  }
  const removed = (text: string, message: string): string =>
    text
      .split('\n')
      .filter(line => line !== message)
      .join('\n')

  test('ND8: issues are fixed one at a time, worst first, and those that do not block stay open', async () => {
    const { runsFolder, run } = withIssues('warn w\nerror b\nblocker c\nerror a', removed)
    expect(await run).toMatchObject({ status: 'completed' })
    const { issues, gates } = snapshotIn(runsFolder, runId)
    expect(issues.map(({ message, status }) => `${message} ${status}`)).toEqual([
      ...['warn w OPEN', 'error b RESOLVED', 'blocker c RESOLVED', 'error a RESOLVED'],
    ])
    const resolved = eventsIn(runsFolder, runId).flatMap(event =>
      event.type === 'ISSUE_RESOLVED'
        ? [issues.find(i => i.issue_id === event.payload.issue_id)?.message]
        : [],
    )
    expect(resolved[0]).toBe('blocker c')
    expect(gates).toMatchObject([{ name: 'gate', ok: true, issues: 1 }])
    const report = JSON.parse(
      readFileSync(join(runsFolder, runId, 'artifacts', 'validation_report.json'), 'utf8'),
    ) as unknown
    expect(contractProblems('validation-report', report)).toEqual([])
  })

  test('ND8: the order is severity, gate, path, line, id', () => {
    const issue = (
      issue_id: string,
      severity: 'error' | 'warn',
      gate: string,
      path: string,
      line: number,
    ) => ({
      issue_id,
      severity,
      gate,
      message: '',
      location: { path, line },
    })
    const sorted = [
      issue('5', 'error', 'a', 'a', 1),
      issue('6', 'error', 'a', 'a', 1),
      issue('4', 'error', 'a', 'a', 2),
      issue('3', 'error', 'a', 'b', 1),
      issue('2', 'error', 'b', 'a', 1),
      issue('1', 'warn', 'a', 'a', 1),
    ]
    expect(worstFirst(sorted.toReversed())).toEqual(sorted)
  })

  test('ND8: a fix that changes nothing fails the run', async () => {
    const { run } = withIssues('error a', text => text)
    expect(await run).toMatchObject({ status: 'failed', error: { code: 'FIX_CHANGED_NOTHING' } })
  })

  test('ND8: a fix that opens a blocker elsewhere fails the run', async () => {
    const { run } = withIssues('error a', () => 'blocker new')
    expect(await run).toMatchObject({ status: 'failed', error: { code: 'FIX_OPENED_BLOCKER' } })
  })

  test('ND8: an issue is fixed three times at most', async () => {
    let fixes = 0
    const { runsFolder, run } = withIssues('error a', text => `${text}\ninfo ${++fixes}`)
    expect(await run).toMatchObject({ status: 'failed', error: { code: 'FIX_ATTEMPTS_EXHAUSTED' } })
    expect(fixes).toBe(3)
    expect(itemsIn(runsFolder, runId).filter(item => item.includes(':mend:'))).toHaveLength(3)
  })
})
