import { expect, test } from 'vitest'
import { startLaunch } from '../../src/launch/launches.ts'
import { openFakeOpenAi } from '../../src/launch/llm/fake-openai.ts'
import { showProgress } from '../../src/launch/progress.ts'
import { newRunsFolder, smallLaunch } from './small-launch.ts'

const launch = smallLaunch({
  work: async (_, ctx) => {
    const messages = [{ role: 'user', content: 'hello' }]
    return (await ctx.llm.chat({ model: 'gpt-4o-mini', messages })).content
  },
  node: ctx => ctx.work('work', { scope: 'a' }),
})

async function shown(isTTY: boolean): Promise<string> {
  const model = await openFakeOpenAi()
  const pieces: string[] = []
  const output = { isTTY, columns: 60, write: (text: string) => pieces.push(text) }
  const observer = showProgress({ output, clock: () => 0 })
  const run = await startLaunch(launch, {
    runsFolder: newRunsFolder(),
    observer,
    llm: { baseUrl: model.baseUrl },
  })
  await run.result
  await model.close()
  return pieces.join('')
}

test('without a terminal, each step is a line', async () => {
  const lines = (await shown(false)).trimEnd().split('\n')
  expect(lines.slice(0, 3)).toEqual(['0:00 WORKING', '0:00   work a: done', '0:00 DONE'])
  expect(lines[3]).toMatch(/^0:00 DONE · 1 done, 0 running, 0 failed · [1-9]\d* tokens · \$0\.0000$/)
})

test('in a terminal, a live view shows state, running work, tokens, cost and time', async () => {
  const text = await shown(true)
  expect(text).toContain('\x1b[1A\x1b[J')
  expect(text).toContain('1 running, 0 failed')
  expect(text).toContain('\n  work a\n')
  for (const line of text.split('\n')) expect(line.split('\x1b[J').at(-1)?.length).toBeLessThan(60)
})
