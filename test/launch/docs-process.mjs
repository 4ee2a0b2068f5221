import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/**
 * A process that works on a run of the docs launch. It kills itself at the
 * event `killAt`. Each execution of a worker appends a line to a file.
 */
const { example, mode, runsFolder, runId, repository, killAt, executions, log, llm, telemetry } = JSON.parse(
  process.argv[2],
)

const load = path => import(pathToFileURL(join(example, path)).href)
const { docsLaunch } = await load('docs-launch/launch.js')
const { startLaunch, resumeLaunch } = await import('annals/launch')

const counted = new Map(
  [...docsLaunch.workers].map(([name, worker]) => [
    name,
    {
      ...worker,
      run: (input, context) => {
        appendFileSync(executions, `${context.workItemId}\n`)
        return worker.run(input, context)
      },
    },
  ]),
)
const launch = { ...docsLaunch, workers: counted }
let seen = 0
const options = {
  runsFolder,
  log,
  llm,
  telemetry,
  warn: () => undefined,
  observer: {
    eventAppended: () => {
      if (++seen === killAt) process.kill(process.pid, 'SIGKILL')
    },
  },
}
try {
  const run =
    mode === 'start'
      ? await startLaunch(launch, { ...options, runId, config: { repository, model: 'gpt-4o-mini' } })
      : await resumeLaunch(launch, runId, { ...options, force: mode === 'force' })
  console.log(JSON.stringify(await run.result))
} catch (error) {
  console.log(JSON.stringify({ status: 'refused', code: error.code, message: error.message }))
}
