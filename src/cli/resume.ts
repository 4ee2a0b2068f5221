import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import type { AnnalsClient } from '../client.ts'
import { statusWordOf } from '../core/vocabulary.ts'
import { type Annals, AnnalsError, createProducer } from '../index.ts'
import type { LaunchDatabase, LaunchRun } from '../launch.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { launchDatabaseOf } from './launch-database.ts'
import { loadLaunches } from './launch-modules.ts'
import { progressOutput } from './launch-progress.ts'
import { lookUpRun } from './run-lookup.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { safeText } from './safe-text.ts'
import { localSource, remoteSource, type Source } from './source.ts'
import { statusText } from './status-text.ts'
import { openStoreOrServer } from './store-access.ts'

interface Options extends Read {
  readonly runs?: string
  readonly launch?: string
  readonly force?: boolean
}

export function addResume(program: Command, context: Context): void {
  const command = program
    .command('resume')
    .argument('<run>', 'id of the run')
    .description('continue a launch that died or was stopped, or a paused run')
    .option('--launch <module>', 'JavaScript module that exports the launch; not needed if the server has it')
    .option('--force', 'run all steps again, even if the launch has ended; its log is continued')
    .action((runId: string, options: Options) => resume(runId, options, context))
  withJson(withRunsFolder(withStore(command)))
  withExamples(command, [
    { type: 'resume docs-1 --launch ./dist/docs-launch.js', for: 'in this process, with progress' },
    {
      type: 'resume docs-1 --server http://127.0.0.1:8765',
      for: 'on a server that was started with --launch',
    },
    { type: 'resume nightly-42', for: 'a paused run of the ledger' },
  ])
}

async function resume(runId: string, options: Options, context: Context): Promise<void> {
  const { terminal } = context
  // A launch may have its files here before the store exists.
  const isLaunch = existsSync(join(runsFolderOf(options), runId, 'events.ndjson'))
  const opened = await openStoreOrServer(options, terminal, { make: isLaunch })
  const db = 'client' in opened ? undefined : opened.db
  try {
    if (options.launch !== undefined) {
      const target = 'client' in opened ? launchDatabaseOf(opened.client) : opened.db
      const ledgerRun = await resumeHere(runId, options.launch, target, options, context)
      // Updates the run index before this process ends.
      await db?.ledger.projectSnapshot(ledgerRun)
      return
    }
    if ('client' in opened && (await isResumedByServer(opened.client, runId, options))) {
      if (options.json === true) return await terminal.json({ runId, status: 'resumed', by: 'server' })
      return await terminal.line(
        `the server resumes ${safeText(runId)}; \`annals events ${safeText(runId)} -f\` shows its progress`,
      )
    }
    if (isLaunch) throw codeIsMissing(runId)
    if ('client' in opened) await unpause(opened.client, remoteSource(opened.client), runId)
    else await unpause(opened.db, localSource(opened.db, false), runId)
    if (options.json === true) return await terminal.json({ runId, status: 'resumed', by: 'ledger' })
    await terminal.line(`${safeText(runId)} resumed`)
  } finally {
    await db?.close()
  }
}

/** False if the server has no files of such a launch. */
async function isResumedByServer(client: AnnalsClient, runId: string, { force }: Options): Promise<boolean> {
  try {
    await client.launches.resume(runId, force === true ? { force } : {})
    return true
  } catch (error) {
    // INVALID_ARGUMENT: the id cannot be a folder, so it is not the id of a launch.
    const isNone = error instanceof AnnalsError && ['RUN_NOT_FOUND', 'INVALID_ARGUMENT'].includes(error.code)
    if (isNone) return false
    throw error
  }
}

/** Resumes the launch in this process and returns the id of its ledger run. After Ctrl-C it can be resumed again. */
async function resumeHere(
  runId: string,
  module: string,
  db: LaunchDatabase,
  options: Options,
  context: Context,
): Promise<string> {
  const { terminal } = context
  const launches = await loadLaunches(module)
  const run = await resumeWith(runId, launches, db, options, context)
  const result = await run.result
  if (result.status !== 'completed') context.end(EXIT.problem)
  const { status, state, error, generation } = result
  const why = error === undefined ? '' : `: ${safeText(error.message)}`
  if (options.json === true) await terminal.json(result)
  else
    await terminal.line(
      `${safeText(runId)}: ${statusText(terminal.colors, status)}, state ${safeText(state)}${why}`,
    )
  return generation === 1 ? runId : `${runId}~${generation}`
}

async function resumeWith(
  runId: string,
  launches: Awaited<ReturnType<typeof loadLaunches>>,
  db: LaunchDatabase,
  options: Options,
  { terminal }: Context,
): Promise<LaunchRun> {
  const { resumeLaunch, showProgress } = await import('../launch.ts')
  let refusal: unknown
  for (const launch of launches) {
    try {
      return await resumeLaunch(launch, runId, {
        runsFolder: runsFolderOf(options),
        db,
        observer: showProgress({ output: progressOutput() }),
        warn: message => terminal.note(`warning: ${safeText(message)}`),
        ...(options.force === true ? { force: true } : {}),
      })
    } catch (error) {
      // This launch has another name; the next one may match.
      if (!(error instanceof AnnalsError) || error.code !== 'INVALID_ARGUMENT') throw error
      refusal = error
    }
  }
  throw refusal
}

/** Appends a RunResumed event for a run of the ledger; changes the status of a run that only the run index knows. */
async function unpause(db: Annals | AnnalsClient, source: Source, runId: string): Promise<void> {
  const { run, isInLedger } = await lookUpRun(source, runId)
  const status = isInLedger ? (await db.ledger.projectSnapshot(runId)).status : run?.status
  if (status !== 'PAUSED' && status !== 'Paused') {
    const found = status === undefined ? 'not in the run index' : statusWordOf(status).word
    const message = `run ${JSON.stringify(runId)} is ${found}, not paused. To continue a launch, add --launch MODULE. To continue any other run, start its program again`
    throw new AnnalsError('ILLEGAL_STATE', message, { runId, status })
  }
  if (!isInLedger) {
    await db.runs.resume(runId)
    return
  }
  const { tenantId, projectId, environmentId, planId, planVersion } = await db.ledger.projectSnapshot(runId)
  const { ledger } = db
  const heading = { runId, tenantId, projectId, environmentId, planId, planVersion }
  await createProducer({ ...heading, store: ledger, registry: ledger.registry }).resume()
  await ledger.projectSnapshot(runId)
}

function codeIsMissing(runId: string): AnnalsError {
  const message = `run ${JSON.stringify(runId)} is a launch: add --launch with the JavaScript module that exports it`
  return new AnnalsError('LAUNCH_UNKNOWN', message, { runId })
}
