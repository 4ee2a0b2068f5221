import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { type AnnalsClient, createClient } from '../client.ts'
import { countText, VERDICT } from '../core/vocabulary.ts'
import { AnnalsError, type RunEventRecord } from '../index.ts'
import { type Context, dataOption, serverOption, tokenOption, withExamples } from './command.ts'
import { loadDocsLaunch } from './demo-launch.ts'
import { stepOf } from './events.ts'
import { EXIT } from './exit-codes.ts'
import { answers, runningServer } from './holding-server.ts'
import { ownCommand } from './own-command.ts'
import { runsFolderOf } from './runs-folder.ts'
import { safeText } from './safe-text.ts'
import { shellWord } from './shell-word.ts'
import type { Terminal } from './terminal.ts'

interface Options {
  readonly data: string
  readonly server?: string
  readonly token?: string
  readonly own?: boolean
}

export function addDemo(program: Command, context: Context): void {
  const command = program
    .command('demo')
    .description('run a launch that writes documentation, kill its process, and resume it')
    .addOption(dataOption())
    .addOption(serverOption('a running server (default: the server that has the folder open)'))
    .addOption(tokenOption())
    .option('--own', 'start a server for the demo even if another one is running')
    .action((options: Options) => demonstrate(options, context))
  withExamples(command, [
    { type: 'demo', for: 'uses the server that has the folder open, or starts one' },
    { type: 'demo --server http://127.0.0.1:9000', for: 'uses that server' },
  ])
}

async function demonstrate(options: Options, context: Context): Promise<void> {
  const { terminal } = context
  const children = new Set<ChildProcess>()
  const endAll = (): void => {
    for (const child of children) child.kill('SIGKILL')
  }
  // The child processes must not outlive this one.
  process.once('exit', endAll)
  try {
    const stage = await setUp(options, terminal, children)
    await play(stage, terminal, children, context)
    sayWhereToLook(stage, terminal)
    await stage.close()
  } finally {
    process.off('exit', endAll)
    endAll()
  }
}

/** Everything that the demo needs. */
interface Stage {
  readonly url: string
  readonly client: AnnalsClient
  readonly runId: string
  readonly runsFolder: string
  readonly repository: string
  readonly workerArgs: readonly string[]
  readonly token: string | undefined
  /** Whether the demo started the server and ends it. */
  readonly isOwnServer: boolean
  /** The options with which other commands find the run. */
  readonly storeOptions: readonly string[]
  close(): Promise<void>
}

async function setUp(options: Options, terminal: Terminal, children: Set<ChildProcess>): Promise<Stage> {
  const { data, token } = options
  const { bold, dim } = terminal.colors
  await terminal.line(
    bold(
      'This launch writes the documentation of a small library: clone, facts, plan, drafts, links, checks, branch.',
    ),
  )
  const { url, child } = await serverFor(options, terminal, children)
  const client = createClient({ url, ...(token === undefined ? {} : { token }) })
  const folder = resolve(data, 'demo')
  mkdirSync(folder, { recursive: true })
  const { makeDemoRepository } = await loadDocsLaunch()
  const repository = await makeDemoRepository(folder).catch(needsGit)
  const runId = `demo-${new Date().toISOString().slice(0, 19).replace(/[-:]/g, '')}Z`
  const runsFolder = resolve(runsFolderOf({ data }))
  await terminal.line(dim(`run ${runId}, its files in ${safeText(join(runsFolder, runId))}`))
  const place = ['--server', url, '--runs', runsFolder, '--run', runId, '--repository', repository]
  return {
    url,
    client,
    runId,
    runsFolder,
    repository,
    workerArgs: ['demo-worker', ...place],
    token,
    isOwnServer: child !== undefined,
    storeOptions: child === undefined && options.server !== undefined ? ['--server', url] : ['--data', data],
    close: async () => {
      if (child === undefined) return
      child.kill('SIGTERM')
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
      children.delete(child)
    },
  }
}

function needsGit(error: unknown): never {
  if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  throw new AnnalsError('INVALID_OPERATION', 'the demo needs git, which is not on the PATH', {}, error)
}

/** The running server, or a new one that ends with the demo. */
async function serverFor(
  options: Options,
  terminal: Terminal,
  children: Set<ChildProcess>,
): Promise<{ readonly url: string; readonly child?: ChildProcess }> {
  const { dim } = terminal.colors
  const url = options.own === true ? undefined : await runningOne(options, terminal)
  if (url !== undefined) {
    await terminal.line(dim(`using the server at ${safeText(url)}`))
    return { url }
  }
  const child = startSelf(['serve', '--data', options.data, '--port', '0'], options.token)
  children.add(child)
  const address = await addressIn(child)
  await terminal.line(dim(`using a server for this demo at ${address}`))
  return { url: address, child }
}

/** The server that --server names, or the one that has the folder open. */
async function runningOne(options: Options, terminal: Terminal): Promise<string | undefined> {
  const { server } = options
  if (server === undefined) return runningServer(options, terminal)
  if (await answers(server)) return server
  const message = `no server answers at ${server}: start one with \`${ownCommand()} serve\`, or leave out --server`
  throw new AnnalsError('UNAVAILABLE', message, { server })
}

function startSelf(args: readonly string[], token: string | undefined): ChildProcess {
  const program = fileURLToPath(new URL('./main.js', import.meta.url))
  const env = { ...process.env, ...(token === undefined ? {} : { ANNALS_TOKEN: token }) }
  return spawn(process.execPath, [program, ...args], { env, stdio: ['ignore', 'ignore', 'pipe'] })
}

/** The address that a server prints when it starts. */
function addressIn(child: ChildProcess): Promise<string> {
  let said = ''
  return new Promise((resolve, reject) => {
    // Keeps reading after the address: a server blocks once the pipe is full.
    child.stderr?.on('data', (chunk: Buffer) => {
      said += String(chunk)
      const [url] = /https?:\/\/\S+/.exec(said) ?? []
      if (url !== undefined) resolve(url)
    })
    child.once('exit', () => {
      reject(new AnnalsError('UNAVAILABLE', `the server did not start: ${said.trim()}`))
    })
  })
}

async function play(
  stage: Stage,
  terminal: Terminal,
  children: Set<ChildProcess>,
  context: Context,
): Promise<void> {
  const { red, green, bold } = terminal.colors
  const watching = new AbortController()
  const records = stage.client.ledger.subscribe({ runId: stage.runId, signal: watching.signal })
  const first = new Worker(stage, [], children)
  let isKilled = false
  let done = 0
  let second: Worker | undefined
  for await (const record of eachOrFailure(
    records,
    () => [first, second],
    () => isKilled,
  )) {
    await terminal.line(lineOf(terminal, record))
    if (record.eventType === 'StepCompleted') done++
    const isDrafted = record.eventType === 'StepCompleted' && record.stepId?.startsWith('draft/') === true
    if (isDrafted && !isKilled) {
      isKilled = true
      await first.kill()
      await terminal.line(
        red(
          bold(
            `kill -9 ${first.pid}: the process is gone in the middle of the drafts. Completed so far: ${countText(done, 'step')}.`,
          ),
        ),
      )
      await terminal.line(green(bold('Another process resumes the run. Completed steps are not run again.')))
      second = new Worker(stage, ['--resume'], children)
    }
    if (/^Run(Completed|Failed|Cancelled)$/.test(record.eventType)) break
  }
  watching.abort()
  await records.return()
  const code = await second?.ended
  if (code !== 0) context.end(EXIT.problem)
  // Updates the run index before the server may end.
  await stage.client.ledger.projectSnapshot(stage.runId)
  const { isValid, events } = await stage.client.ledger.verifyRun(stage.runId)
  if (!isValid) context.end(EXIT.problem)
  const verdict = isValid
    ? green(`${VERDICT.good}: ${countText(events, 'event')}, hash chain and snapshot verified`)
    : red(`${VERDICT.bad}: the events do not verify`)
  await terminal.line(bold(verdict))
}

/** A process that runs the launch. */
class Worker {
  readonly pid: number | undefined
  readonly ended: Promise<number | null>
  said = ''
  readonly #child: ChildProcess

  constructor({ workerArgs, token }: Stage, more: readonly string[], children: Set<ChildProcess>) {
    this.#child = startSelf([...workerArgs, ...more], token)
    this.pid = this.#child.pid
    children.add(this.#child)
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      this.said += String(chunk)
    })
    this.ended = once(this.#child, 'close').then(([code]) => {
      children.delete(this.#child)
      return code as number | null
    })
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.ended
  }
}

/** The events as they arrive. Throws if a worker fails that the demo did not kill. */
async function* eachOrFailure(
  records: AsyncGenerator<RunEventRecord, void, void>,
  workers: () => readonly (Worker | undefined)[],
  isKilled: () => boolean,
): AsyncGenerator<RunEventRecord, void, void> {
  for (;;) {
    const working = workers().filter((worker, i) => worker !== undefined && !(i === 0 && isKilled()))
    const failed = Promise.race(working.map(async worker => ({ failure: await failureOf(worker as Worker) })))
    const next = await Promise.race([records.next(), failed])
    if ('failure' in next) throw new AnnalsError('INTERNAL', next.failure)
    if (next.done === true) return
    yield next.value
  }
}

/** Never resolves for a worker that succeeds, because its last events may still arrive. */
async function failureOf(worker: Worker): Promise<string> {
  const code = await worker.ended
  if (code === 0) return new Promise(() => undefined)
  return `the worker of the demo ended with ${code}: ${worker.said.trim()}`
}

function lineOf(terminal: Terminal, record: RunEventRecord): string {
  const { runSeq, eventType, stepId } = record
  const { dim, green, red, cyan } = terminal.colors
  const paint = /Completed$/.test(eventType) ? green : /Failed$/.test(eventType) ? red : cyan
  const step = stepId === undefined ? '' : ` ${safeText(stepOf(record))}`
  return `${dim(String(runSeq).padStart(4))}  ${paint(safeText(eventType))}${step}`
}

function sayWhereToLook(stage: Stage, terminal: Terminal): void {
  const { runId, url, isOwnServer, storeOptions, repository, token } = stage
  // The token itself must not be in text that people copy.
  const withToken = token === undefined ? '' : ' (with the token in ANNALS_TOKEN)'
  const annals = ownCommand()
  const where =
    storeOptions.join(' ') === '--data ./.annals' ? '' : ` ${storeOptions.map(shellWord).join(' ')}`
  terminal.note('')
  terminal.note(`Look at the run${withToken}:`)
  for (const command of ['show', 'events', 'verify', 'replay'])
    terminal.note(`  ${annals} ${command} ${runId}${where}`)
  terminal.note(`  ${annals} export ${runId}${where} -o demo.bundle && ${annals} verify-bundle demo.bundle`)
  terminal.note(`  git -C ${shellWord(repository)} log --stat -1 docs-launch`)
  const page = isOwnServer ? `${annals} serve${where}, then open http://127.0.0.1:8765/` : `open ${url}/`
  terminal.note(`  ${page} in a browser`)
}
