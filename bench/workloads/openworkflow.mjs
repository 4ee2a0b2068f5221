import { isBuiltin } from 'node:module'
import { OpenWorkflow } from 'openworkflow'
import { median } from '../measure.mjs'
import { newDatabase, withServer } from '../postgres-server.mjs'
import { killed, nextMessage, startJob, syncFolder, withFolder } from '../processes.mjs'

const MODULE = './workloads/openworkflow.mjs'
const STEPS = 3
/** How many runs a worker executes at once. */
const CONCURRENCY = 16

const CASES = [
  { title: 'disk, durable', runs: 600, processes: 1, theirs: 'BackendSqlite', must: 3 },
  { title: 'PostgreSQL, one process', runs: 400, processes: 1, theirs: 'BackendPostgres', must: 1 },
  { title: 'PostgreSQL, four processes', runs: 600, processes: 4, theirs: 'BackendPostgres', must: 1 },
]

/** OpenWorkflow's worker on Annals against the same worker on its own back ends, in runs of three steps per second. */
export async function run({ rounds }) {
  return withServer(async server => {
    const rows = []
    for (const [index, one] of CASES.entries()) {
      if (one.theirs === 'BackendSqlite' && !isBuiltin('node:sqlite')) {
        console.error(`openworkflow: ${one.title} is not measured, because BackendSqlite needs Node 22`)
        continue
      }
      console.error(`openworkflow: ${one.title}`)
      const rates = { annals: [], [one.theirs]: [] }
      // The first round warms up the disk and the server. Each turn has new processes and a new store.
      for (let round = 0; round <= rounds; round++) {
        for (const backend of Object.keys(rates)) {
          const usesServer = one.theirs === 'BackendPostgres'
          const name = `openworkflow_${index}_${round}_${backend.toLowerCase()}`
          const connectionString = usesServer ? await newDatabase(server, name) : undefined
          const rate = await turn({ ...one, backend, connectionString })
          if (round > 0) rates[backend].push(rate)
        }
      }
      const [ours, theirs] = Object.entries(rates).map(([name, list]) => ({
        name,
        value: median(list),
        rounds: list,
      }))
      rows.push({
        title: `OpenWorkflow's worker, ${one.title}`,
        unit: 'runs/s',
        ours,
        theirs,
        ratio: ours.value / theirs.value,
        must: { atLeast: one.must },
        aim: 2 * one.must,
      })
    }
    return rows
  })
}

/** Creates the runs, lets all processes work, and returns the rate until the last run has ended. */
async function turn({ runs, processes, backend, connectionString }) {
  return withFolder(async folder => {
    const jobs = []
    try {
      for (let i = 0; i < processes; i++) {
        jobs.push(startJob(MODULE, 'work', { backend, connectionString, folder }))
        await nextMessage(jobs[i], 'ready')
      }
      const created = nextMessage(jobs[0], 'created')
      jobs[0].child.send({ create: runs })
      await created
      syncFolder(folder)
      let ended = 0
      const allEnded = new Promise((resolve, reject) => {
        for (const { child, done } of jobs) {
          done.catch(reject)
          child.on('message', ({ ended: one }) => {
            if (one && ++ended === runs) resolve()
          })
        }
      })
      const start = performance.now()
      for (const { child } of jobs) child.send({ work: true })
      await allEnded
      return (runs / (performance.now() - start)) * 1000
    } finally {
      for (const job of jobs) await killed(job)
    }
  })
}

/** A process with one worker. It reports each run that it has ended. */
export async function work(settings) {
  const backend = await openBackend(settings)
  const complete = backend.completeWorkflowRun.bind(backend)
  backend.completeWorkflowRun = async params => {
    const completed = await complete(params)
    process.send({ ended: true })
    return completed
  }
  const ow = new OpenWorkflow({ backend })
  const workflow = ow.defineWorkflow({ name: 'bench' }, async ({ step }) => {
    for (let i = 0; i < STEPS; i++) await step.run({ name: `step-${i}` }, () => i)
    return { ok: true }
  })
  process.on('message', async message => {
    try {
      if (message.create !== undefined) {
        for (let i = 0; i < message.create; i += CONCURRENCY)
          await Promise.all(
            Array.from({ length: Math.min(CONCURRENCY, message.create - i) }, () => workflow.run({ n: i })),
          )
        process.send({ created: true })
      }
      if (message.work) await ow.newWorker({ concurrency: CONCURRENCY }).start()
    } catch (error) {
      process.send({ error: error.stack }, () => process.exit(1))
    }
  })
  process.send({ ready: true })
  return new Promise(() => {})
}

async function openBackend({ backend, connectionString, folder }) {
  if (backend === 'BackendPostgres') {
    const { BackendPostgres } = await import('openworkflow/postgres')
    return BackendPostgres.connect(connectionString)
  }
  if (backend === 'BackendSqlite') {
    const { BackendSqlite } = await import('openworkflow/sqlite')
    return BackendSqlite.connect(`${folder}/openworkflow.db`)
  }
  const { AnnalsBackend } = await import('../../dist/integrations/openworkflow.js')
  if (connectionString === undefined) {
    const { open } = await import('../../dist/index.js')
    return new AnnalsBackend(await open({ path: `${folder}/annals` }))
  }
  const { openPostgres } = await import('../../dist/postgres.js')
  return new AnnalsBackend(await openPostgres({ connectionString }))
}
