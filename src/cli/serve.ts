import type { Command } from 'commander'
import { type Annals, AnnalsError } from '../index.ts'
import type { Launch } from '../launch.ts'
import type { Server, ServerAddress } from '../server.ts'
import { announce } from './announcement.ts'
import { type Context, collected, wholeNumber, withExamples, withStoreOf } from './command.ts'
import { loadLaunches } from './launch-modules.ts'
import { ownCommand } from './own-command.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { safeText } from './safe-text.ts'
import { openStore, type StoreOptions } from './store-access.ts'
import type { Terminal } from './terminal.ts'

interface Options extends StoreOptions {
  readonly host: string
  readonly port: number
  readonly runs?: string
  readonly launch: readonly string[]
  readonly log?: boolean
}

const PORT = 8765

export function addServe(program: Command, context: Context): void {
  const command = program
    .command('serve')
    .description('serve a store over HTTP: API, web page, event streams, telemetry')
    .option('--host <address>', 'address to listen on; any other than loopback needs tokens', '127.0.0.1')
    .option('--port <n>', 'port to listen on; 0 for any free port', wholeNumber('--port', 0, 65_535), PORT)
    .option(
      '--launch <module>',
      'JavaScript module with launches that this server may resume; may be given several times',
      collected,
      [],
    )
    .option('--log', 'write a line of JSON to stderr for each request')
    .action((options: Options) => serveStore(options, context))
  withRunsFolder(withStoreOf(command))
  withExamples(command, [
    { type: 'serve', for: 'on http://127.0.0.1:8765, with the store in ./.annals' },
    { type: 'serve --postgres postgres://localhost/runs --port 9000', for: 'a store on PostgreSQL' },
    { type: 'serve --host 0.0.0.0', for: 'for other machines; first run: annals token create' },
  ])
}

async function serveStore(options: Options, context: Context): Promise<void> {
  const { terminal } = context
  const launches = (await Promise.all(options.launch.map(loadLaunches))).flat()
  const db = await openStore(options)
  try {
    const server = await serverOver(db, options, launches, terminal)
    const address = await listen(server, options)
    const unannounce = announced(options, address, terminal)
    try {
      sayHello(terminal, options, address)
      await interrupted(context.interruption())
      terminal.note('stopping after the open requests')
    } finally {
      unannounce()
      await server.close()
    }
  } finally {
    await db.close()
  }
}

/** Imports the server here, so that the other commands start without loading it. */
async function serverOver(
  db: Annals,
  options: Options,
  definitions: readonly Launch[],
  terminal: Terminal,
): Promise<Server> {
  const { createLaunchRegistry, createServer, telemetrySettings } = await import('../server.ts')
  const { host, port, tenant, log } = options
  const warn = (message: string): void => terminal.note(`warning: ${safeText(message)}`)
  return createServer(db, {
    host,
    port,
    tenant,
    launches: createLaunchRegistry({ runsFolder: runsFolderOf(options), db, definitions, warn }),
    // Failures are always logged: the caller was given a request id to find them by.
    log: line => {
      if (log === true || isFailure(line)) terminal.note(line)
    },
    ...telemetrySettings(terminal.env),
  })
}

/** Looks at the text of a log line, because parsing one for every request costs more. */
function isFailure(line: string): boolean {
  return /"status":5\d\d\b/.test(line)
}

async function listen(server: Server, { host, port }: Options): Promise<ServerAddress> {
  try {
    return await server.listen()
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'EADDRINUSE') {
      const said = `port ${port} is in use, perhaps by another server: stop it, or choose another port with --port`
      throw new AnnalsError('UNAVAILABLE', said, { port }, error)
    }
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
      throw new AnnalsError(
        'UNAVAILABLE',
        `cannot listen on ${host} port ${port}: ${message}`,
        { host, port },
        error,
      )
    }
    if (error instanceof AnnalsError && error.code === 'INVALID_OPERATION') {
      const said = `${error.message}. For example: annals token create --role admin`
      throw new AnnalsError(error.code, said, error.details, error)
    }
    throw error
  }
}

function announced({ postgres, data }: Options, { url }: ServerAddress, terminal: Terminal): () => void {
  if (postgres !== undefined) return () => undefined
  return announce(data, url, message => terminal.note(`warning: ${message}`))
}

function sayHello(terminal: Terminal, options: Options, { url }: ServerAddress): void {
  const { bold, cyan } = terminal.noteColors
  const store = options.postgres === undefined ? safeText(options.data) : 'the store on PostgreSQL'
  terminal.note(`${bold('annals')} serves ${store} at ${cyan(url)}`)
  terminal.note(`  page  ${url}/`)
  terminal.note(`  API   ${url}/docs`)
  terminal.note(`  try   ${ownCommand()} demo   (in another terminal)`)
  terminal.note('Ctrl-C stops it.')
}

function interrupted(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
