import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { AnnalsError } from '../../src/core/errors.ts'
import { defineGate, defineLaunch, defineWorker } from '../../src/launch/definition.ts'
import { DOCS_STATES } from '../../src/launch/docs/pipeline.ts'
import { startLaunch } from '../../src/launch/launches.ts'
import { newRunsFolder, SMALL_STATES, smallLaunch } from './small-launch.ts'

const runId = 'r1'

describe('definitions', () => {
  const worker = defineWorker({ run: async ({ page }: { page: string }) => ({ words: page.length }) })
  const gate = defineGate<'DEAD_LINK'>({ run: () => [] })
  const nodes = [
    { name: 'begin', state: 'READY', run: async () => 'WORKING' as const },
    { name: 'work', state: 'WORKING', run: async () => 'DONE' as const },
    { name: 'check', state: 'CHECKING', run: async () => 'DONE' as const },
    { name: 'mend', state: 'MENDING', run: async () => 'CHECKING' as const },
  ] as const
  const base = { name: 'x', version: '1', states: SMALL_STATES, workers: { worker }, gates: { gate }, nodes }

  test('ND7: inputs, outputs, issues and states are typed from the definition', () => {
    defineLaunch({
      ...base,
      nodes: [
        {
          name: 'begin',
          state: 'READY',
          run: async ctx => {
            const { words } = await ctx.work('worker', { input: { page: 'x' } })
            const count: number = words
            const { issues } = await ctx.validate()
            const code: 'DEAD_LINK' | undefined = issues[0]?.error_code
            // @ts-expect-error: there is no such worker
            ctx.work('walker', { input: { page: String(count) + code } }).catch(() => undefined)
            // @ts-expect-error: its input has no such field
            ctx.work('worker', { input: { pages: 'x' } }).catch(() => undefined)
            return 'WORKING'
          },
        },
        // @ts-expect-error: READY does not follow WORKING
        { name: 'work', state: 'WORKING', run: async () => 'READY' },
        ...nodes.slice(2),
      ],
      // @ts-expect-error: a fixer takes an issue
      fixer: 'worker',
    })
  })

  test('ND1: a definition that a run could not be executed with is refused', () => {
    const refused = (definition: unknown): string => {
      try {
        defineLaunch(definition as typeof base)
      } catch (error) {
        expect(error).toBeInstanceOf(AnnalsError)
        expect((error as AnnalsError).code).toBe('INVALID_ARGUMENT')
        return (error as AnnalsError).message
      }
      return 'nothing'
    }
    expect(refused(base)).toBe('nothing')
    expect(refused({ ...base, nodes: [...nodes, { ...nodes[0], name: 'again' }] })).toContain(
      'must be one a state: READY',
    )
    expect(refused({ ...base, nodes: nodes.slice(1) })).toContain('must include one for the state READY')
    expect(refused({ ...base, nodes: [...nodes, { ...nodes[0], state: 'NOWHERE', name: 'n' }] })).toContain(
      'not a state',
    )
    expect(refused({ ...base, nodes: [...nodes, { ...nodes[0], state: 'DONE', name: 'n' }] })).toContain(
      'terminal states',
    )
    expect(refused({ ...base, name: 'a|b' })).toContain('name')
    expect(refused({ ...base, workers: { 'a/b': worker } })).toContain('name')
    expect(refused({ ...base, fixer: 'nobody' })).toContain('not one of the workers')
    expect(refused({ ...base, concurrency: 0 })).toContain('concurrency')
    expect(refused({ ...base, wrokers: {} })).toContain('wrokers')
  })
})

test('ND2: the default states are those of the docs pipeline', () => {
  const kinds = Object.entries(DOCS_STATES.states).filter(([, { kind }]) => kind === 'stable')
  expect(kinds.map(([state]) => state)).toEqual([
    ...['CREATED', 'CLONED_INPUTS', 'INGESTED', 'FACTS_READY', 'PLAN_READY', 'DRAFT_READY', 'READY_FOR_PR'],
    'PR_OPENED',
  ])
})

test('N8: invalid options are refused before anything is created', async () => {
  const runsFolder = newRunsFolder()
  const launch = smallLaunch({})
  const bad: object[] = [
    { config: [] },
    { config: { at: new Date() } },
    { log: 'database' },
    { log: 'tape' },
    { llm: 'gpt' },
    { signal: {} },
    { runsFolder: '' },
    { runsFoldr: '' },
  ]
  for (const options of bad) {
    const all = { runsFolder, runId, ...options } as Parameters<typeof startLaunch>[1]
    await expect(startLaunch(launch, all), JSON.stringify(options)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
  }
  expect(existsSync(join(runsFolder, runId))).toBe(false)
})
