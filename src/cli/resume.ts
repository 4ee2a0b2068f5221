import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import type { AnnalsClient } from '../client.ts'
import { type Annals, AnnalsError, createProducer } from '../index.ts'
import type { LaunchDatabase, LaunchRun } from '../launch.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { launchDatabaseOf } from './launch-database.ts'
import { loadLaunches } from './launch-modules.ts'
import { progressOutput } from './launch-progress.ts'
import { lookUpRun } from './lookup.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { safeText } from './safe-text.ts'
import { localSource, remoteSource, type Source } from './source.ts'
import { openStoreOrServer } from './store.ts'

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
    .option('--launch <module>', 'the JavaScript module that exports the launch; a server may know it too')
    .option('--force', 'do all of it again, also if it has ended; its log goes on')
    .action((runId: string, options: Options) => resume(runId, options, context))
  withJson(withRunsFolder(withStore(command)))
  withExamples(command, [
    { type: 'resume docs-1 --launch ./dist/docs-launch.js', for: 'in this process, with progress' },
    {
      type: 'resume docs-1 --server http://127.0.0.1:8765',
      for: 'in a server that was started with --launch',
    },
    { type: 'resume nightly-42', for: 'a run of the ledger that is paused' },
  ])
}

async function resume(runId: string, options: Options, context: Context): Promise<void> {
  const { terminal } = context
  // A launch may have its files there, and no store yet.
  const isLaunch = existsSync(join(runsFolderOf(options), runId, 'events.ndjson'))
  const opened = await openStoreOrServer(options, terminal, { make: isLaunch })
  const db = 'client' in opened ? undefined : opened.db
  try {
    if (options.launch !== undefined) {
      const target = 'client' in opened ? launchDatabaseOf(opened.client) : opened.db
      const ledgerRun = await resumeHere(runId, options.launch, target, options, context)
      // So that the index says so too when this process is gone.
      await db?.ledger.projectSnapshot(ledgerRun)
      return
    }
    if ('client' in opened && (await isResumedByServer(opened.client, runId, options))) {
      if (options.json === true) return await terminal.json({ runId, status: 'resumed', by: 'server' })
      return await terminal.line(
        `the server goes on with ${safeText(runId)}: \`annals events ${safeText(runId)} -f\``,
      )
    }
    if (isLaunch) throw codeIsMissing(runId)
    if ('client' in opened) await unpause(opened.client, remoteSource(opened.client), runId)
    else await unpause(opened.db, localSource(opened.db, false), runId)
    if (options.json === true) return await terminal.json({ runId, status: 'resumed', by: 'ledger' })
    await terminal.line(`${safeText(runId)} goes on`)
  } finally {
    await db?.close()
  }
}

/** False if it is no launch that the server has files of. */
async function isResumedByServer(client: AnnalsClient, runId: string, { force }: Options): Promise<boolean> {
  try {
    await client.launches.resume(runId, force === true ? { force } : {})
    return true
  } catch (error) {
    // An id that can be no folder's is no launch's either.
    const isNone = error instanceof AnnalsError && ['RUN_NOT_FOUND', 'INVALID_ARGUMENT'].includes(error.code)
    if (isNone) return false
    throw error
  }
}

/** Ctrl-C leaves it as a crash would: it can be resumed again. Answers which run of the ledger it is. */
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
  else await terminal.line(`${safeText(runId)} ${status} in state ${safeText(state)}${why}`)
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
      // Of a launch by another name; the next one may be it.
      if (!(error instanceof AnnalsError) || error.code !== 'INVALID_ARGUMENT') throw error
      refusal = error
    }
  }
  throw refusal
}

/** A run of the ledger goes on by an event, one that only the index knows by its status. */
async function unpause(db: Annals | AnnalsClient, source: Source, runId: string): Promise<void> {
  const { run, isInLedger } = await lookUpRun(source, runId)
  const status = isInLedger ? (await db.ledger.projectSnapshot(runId)).status : run?.status
  if (status !== 'PAUSED' && status !== 'Paused') {
    const message = `run ${JSON.stringify(runId)} is ${status ?? 'not in the index of runs'}: only a run that is paused can be resumed without its code; for a launch add --launch MODULE`
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
  const message = `run ${JSON.stringify(runId)} is a launch, whose work is in its code: add --launch with the module that exports it`
  return new AnnalsError('LAUNCH_UNKNOWN', message, { runId })
}
