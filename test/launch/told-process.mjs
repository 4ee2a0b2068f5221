import { defineLaunch, defineWorker, startLaunch } from '../../dist/launch.js'

/**
 * A process that starts a launch with telemetry, and kills itself right after an event of the given type is durable. Its
 * worker waits until the service knows the run.
 */
const { runsFolder, runId, url, states, killAt } = JSON.parse(process.argv[2])
const launch = defineLaunch({
  name: 'killed',
  version: '1',
  states,
  workers: {
    work: defineWorker({
      run: async () => {
        for (let status = 0; status !== 200; ) status = (await fetch(`${url}/telemetry/${runId}`)).status
      },
    }),
  },
  gates: {},
  nodes: [
    { name: 'begin', state: 'READY', run: async () => 'WORKING' },
    {
      name: 'toil',
      state: 'WORKING',
      run: async ctx => {
        await ctx.work('work')
        return 'DONE'
      },
    },
    { name: 'check', state: 'CHECKING', run: async () => 'DONE' },
    { name: 'mend', state: 'MENDING', run: async () => 'CHECKING' },
  ],
})
const observer = {
  eventAppended: ({ type }) => {
    if (type === killAt) process.kill(process.pid, 'SIGKILL')
  },
}
await (await startLaunch(launch, { runsFolder, runId, observer, telemetry: { url } })).result
