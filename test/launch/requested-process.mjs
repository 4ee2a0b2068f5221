import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { defineLaunch, defineWorker, resumeLaunch, startLaunch } from '../../dist/launch.js'

/**
 * A process that works on a run with two pieces of work. Each ends when a file of its name exists. The process prints
 * what starts and how the run ends. With `deaf` it blocks its event loop and takes no requests.
 */
const { mode, runsFolder, runId, files, states, deaf } = JSON.parse(process.argv[2])
const isThere = async (name, signal) => {
  while (!existsSync(join(files, name)) && !signal.aborted)
    await new Promise(resolve => setTimeout(resolve, 5))
}
const launch = defineLaunch({
  name: 'asked',
  version: '1',
  states,
  concurrency: 1,
  workers: {
    work: defineWorker({
      run: async (_, { scope, signal }) => {
        writeFileSync(join(files, `${scope}-began`), '')
        if (deaf) for (;;) existsSync(files)
        await isThere(scope, signal)
      },
    }),
  },
  gates: {},
  nodes: [
    { name: 'begin', state: 'READY', run: async () => 'WORKING' },
    {
      name: 'work',
      state: 'WORKING',
      run: async ctx => {
        await Promise.all(['a', 'b'].map(scope => ctx.work('work', { scope })))
        return 'DONE'
      },
    },
    { name: 'check', state: 'CHECKING', run: async () => 'DONE' },
    { name: 'mend', state: 'MENDING', run: async () => 'CHECKING' },
  ],
})
const run =
  mode === 'start'
    ? await startLaunch(launch, { runsFolder, runId })
    : await resumeLaunch(launch, runId, { runsFolder })
console.log(JSON.stringify(await run.result))
