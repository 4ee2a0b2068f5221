// A worker of OpenWorkflow in a process of its own. It prints each step that it begins, and stops in the step `hangIn`.
import { OpenWorkflow } from 'openworkflow'
import { open } from '../../dist/index.js'
import { AnnalsBackend } from '../../dist/integrations/openworkflow.js'
import { openPostgres } from '../../dist/postgres.js'

const { path, connectionString, schema, hangIn } = JSON.parse(process.argv[2])
const db = await (path === undefined ? openPostgres({ connectionString, schema }) : open({ path }))

/** OpenWorkflow's workers have leases of 30 seconds. A test does not wait that long. */
class ShortLeases extends AnnalsBackend {
  claimWorkflowRun(params) {
    return super.claimWorkflowRun({ ...params, leaseDurationMs: 300 })
  }
}

const ow = new OpenWorkflow({ backend: new ShortLeases(db) })
const workflow = ow.defineWorkflow({ name: 'three-steps' }, async ({ step }) => {
  const results = []
  for (const name of ['one', 'two', 'three']) {
    const run = async () => {
      process.stdout.write(`${name}\n`)
      if (name === hangIn) await new Promise(resolve => setTimeout(resolve, 60_000))
      return `${name} by ${process.pid}`
    }
    results.push(await step.run({ name }, run))
  }
  return results
})
if (hangIn !== undefined) await workflow.run()
const worker = ow.newWorker()
await worker.start()
process.stdin.on('end', async () => {
  await worker.stop()
  await db.close()
})
process.stdin.resume()
