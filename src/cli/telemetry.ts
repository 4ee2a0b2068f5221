import { statSync } from 'node:fs'
import type { Command } from 'commander'
import { countText } from '../core/vocabulary.ts'
import { type Context, dataOption, type Json, usageError, withExamples, withJson } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { safeText } from './safe-text.ts'
import { printTable } from './table.ts'

interface Options extends Json {
  readonly data: string
  readonly runs?: string
  readonly url?: string
}

export function addTelemetry(program: Command, context: Context): void {
  const telemetry = program.command('telemetry').description("send launches' telemetry")
  const command = telemetry
    .command('flush')
    .description('send the telemetry that launches could not deliver, in its original order')
    .addOption(dataOption())
    .option(
      '--url <url>',
      'address of the service (default: TELEMETRY_API_URL); its token is read from TELEMETRY_API_AUTH_TOKEN',
    )
    .action((options: Options) => flush(options, context))
  withJson(withRunsFolder(command))
  withExamples(command, [
    { type: 'telemetry flush --url http://127.0.0.1:8765', for: 'exit code 1 if some could not be sent' },
    { type: 'telemetry flush --runs ./runs --json', for: 'another folder, for a script' },
  ])
}

async function flush(options: Options, context: Context): Promise<void> {
  const { terminal } = context
  const url = options.url ?? terminal.env['TELEMETRY_API_URL']
  if (url === undefined || url === '') {
    throw usageError('give the address of the service: --url http://127.0.0.1:8765, or TELEMETRY_API_URL')
  }
  const runsFolder = runsFolderOf(options)
  if (statSync(runsFolder, { throwIfNoEntry: false })?.isDirectory() === false) {
    throw usageError(`${runsFolder} is a file; --runs takes a folder`)
  }
  const token = terminal.env['TELEMETRY_API_AUTH_TOKEN']
  const { flushTelemetry } = await import('../launch.ts')
  const runs = await flushTelemetry({
    runsFolder,
    telemetry: { url, ...(token === undefined || token === '' ? {} : { token }) },
    warn: message => terminal.note(safeText(message)),
  })
  const waiting = runs.reduce((sum, run) => sum + run.waiting, 0)
  if (waiting > 0) context.end(EXIT.problem)
  if (options.json === true) return terminal.json({ ok: waiting === 0, runs })
  if (runs.length === 0) {
    terminal.note(`no telemetry is waiting in ${safeText(runsFolder)}`)
    return
  }
  await printTable(terminal, runs, [
    { title: 'RUN', text: run => run.runId, fit: 'whole' },
    { title: 'SENT', text: run => String(run.accepted), alignRight: true },
    { title: 'REFUSED', text: run => String(run.dead), alignRight: true },
    { title: 'WAITING', text: run => String(run.waiting), alignRight: true },
  ])
  if (waiting > 0)
    terminal.note(
      `not sent yet: ${countText(waiting, 'record')}. Is the service running, and the token right?`,
    )
}
