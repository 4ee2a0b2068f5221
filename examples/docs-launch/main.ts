import { mkdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { open } from 'annals'
import { replayLaunch, showProgress, startLaunch } from 'annals/launch'
import { makeDemoRepository } from './demo-repository.ts'
import { git } from './git.ts'
import { docsLaunch } from './launch.ts'
import { openRefusingWriter, openWriter } from './writer.ts'

// Documents a small library, from its clone to the branch of a pull request. The second argument may be `failure`, which uses a
// model that refuses, or `cancellation`, which cancels the launch while it drafts. A fake model writes the pages, unless
// DOCS_LLM_URL and DOCS_LLM_KEY name an endpoint with OpenAI's API (and DOCS_LLM_MODEL a model).
const folder = resolve(process.argv[2] ?? 'docs-launch-demo')
const variant = process.argv[3] ?? 'success'
mkdirSync(folder, { recursive: true })
const repository = await makeDemoRepository(folder)
const db = await open({ path: join(folder, 'store') })
const { DOCS_LLM_URL: url, DOCS_LLM_KEY: apiKey, DOCS_LLM_MODEL: model = 'gpt-4o-mini' } = process.env
const writer = await (variant === 'failure' ? openRefusingWriter() : openWriter())
const cancelled = new AbortController()

const run = await startLaunch(docsLaunch, {
  runsFolder: join(folder, 'runs'),
  config: { repository, model },
  db,
  llm: { baseUrl: url ?? writer.baseUrl, ...(apiKey === undefined ? {} : { apiKey }) },
  signal: cancelled.signal,
  observer: {
    ...showProgress(),
    nodeStarted: ({ name }) => {
      if (name === 'draft' && variant === 'cancellation') cancelled.abort('no longer needed')
    },
  },
})
const { status, state, error } = await run.result
console.log(`run ${status} in state ${state}${error === undefined ? '' : `: ${error.message}`}`)

const { snapshot, events } = await replayLaunch(run.runId, { runsFolder: join(folder, 'runs') })
console.log(`${events} events, replayed to state ${snapshot.run_state}`)
for (const issue of snapshot.issues) console.log(`  ${issue.status}: ${issue.message}`)
if (status === 'completed')
  console.log(await git(repository, ['log', '--oneline', '--stat', 'docs-launch', '-1']))

const ledger = await db.ledger.projectSnapshot(run.runId)
console.log(`the ledger says ${ledger.status} after ${ledger.steps.length} steps`)
await writer.close()
await db.close()
