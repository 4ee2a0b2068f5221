import type { Command } from 'commander'
import { createClient } from '../client.ts'
import { pause } from '../core/pause.ts'
import { type Context, tokenOption } from './command.ts'
import { loadDocsLaunch } from './demo-launch.ts'
import { EXIT } from './exit-codes.ts'
import { launchDatabaseOf } from './launch-database.ts'
import { safeText } from './safe-text.ts'

interface Options {
  readonly server: string
  readonly token?: string
  readonly runs: string
  readonly run: string
  readonly repository: string
  readonly resume?: boolean
}

/** The process that the demo kills. A hidden command: it runs only the launch. */
export function addDemoWorker(program: Command, context: Context): void {
  program
    .command('demo-worker', { hidden: true })
    .description('run the launch of the demo')
    .requiredOption('--server <url>')
    .addOption(tokenOption())
    .requiredOption('--runs <dir>')
    .requiredOption('--run <id>')
    .requiredOption('--repository <dir>')
    .option('--resume')
    .action((options: Options) => work(options, context))
}

/** Slows down the model's answers, so that the launch is still running when it is killed. */
const THINKING_MS = 700

async function work(options: Options, context: Context): Promise<void> {
  const { server, token, runs, run: runId, repository } = options
  const { resumeLaunch, startLaunch } = await import('../launch.ts')
  const { docsLaunch, openWriter } = await loadDocsLaunch()
  const writer = await openWriter()
  const credentials = token === undefined ? {} : { token }
  let calls = 0
  const common = {
    runsFolder: runs,
    db: launchDatabaseOf(createClient({ url: server, ...credentials })),
    telemetry: { url: server, ...credentials },
    llm: {
      baseUrl: writer.baseUrl,
      fetch: async (input: string | URL | Request, init?: RequestInit) => {
        await pause(THINKING_MS * ++calls)
        return fetch(input, init)
      },
    },
    warn: (message: string) => context.terminal.note(`warning: ${safeText(message)}`),
  }
  const run =
    options.resume === true
      ? await resumeLaunch(docsLaunch, runId, common)
      : await startLaunch(docsLaunch, { ...common, runId, config: { repository, model: 'gpt-4o-mini' } })
  const { status } = await run.result
  await writer.close()
  if (status !== 'completed') context.end(EXIT.problem)
}
