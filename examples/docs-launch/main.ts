import { mkdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { open } from 'annals'
import { replayLaunch, startLaunch } from 'annals/launch'
import { makeDemoRepository } from './demo-repository.ts'
import { git } from './git.ts'
import { docsLaunch } from './launch.ts'
import { localWriter } from './writer.ts'

// Documents a small library, from its clone to the branch of a pull request.
const folder = resolve(process.argv[2] ?? 'docs-launch-demo')
mkdirSync(folder, { recursive: true })
const repository = await makeDemoRepository(folder)
const db = await open({ path: join(folder, 'store') })

const run = await startLaunch(docsLaunch, {
  runsFolder: join(folder, 'runs'),
  config: { repository },
  db,
  llm: () => localWriter(),
  observer: {
    nodeFinished: ({ name, outcome }) => console.log(`${name}: ${outcome}`),
  },
})
const { status, state } = await run.result
console.log(`run ${status} in state ${state}`)

const { snapshot, events } = await replayLaunch(run.runId, { runsFolder: join(folder, 'runs') })
console.log(`${events} events, replayed to state ${snapshot.run_state}`)
for (const { message, status: of } of snapshot.issues) console.log(`  ${of}: ${message}`)
console.log(await git(repository, ['log', '--oneline', '--stat', 'docs-launch', '-1']))

const { steps } = await db.ledger.projectSnapshot(run.runId)
console.log(`the ledger has seen ${steps.length} steps`)
await db.close()
