import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'

/**
 * The first commands of a new user: `npm start` in a clean copy of the repository, then the commands of the package as npm
 * installs it. The installed dependencies stand in for the registry, so no network is needed.
 */
const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const folder = mkdtempSync(join(tmpdir(), 'annals-newcomer-'))
let server: ChildProcess | undefined
afterAll(async () => {
  if (server?.pid !== undefined) {
    process.kill(-server.pid, 'SIGKILL')
    await once(server, 'close')
  }
  rmSync(folder, { recursive: true, force: true })
})

const ENV: NodeJS.ProcessEnv = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) => !/^(ANNALS|TELEMETRY|VITEST)|^NO_COLOR$|^NODE_ENV$/i.test(name),
  ),
)

/** Copies the repository without its tests, which `npm start` must not need, and links its installed dependencies. */
function cloneRepository(): string {
  const clone = join(folder, 'clone')
  const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  for (const file of files.trim().split('\n')) {
    if (/^(bench|docs|test)\//.test(file) || !existsSync(join(ROOT, file))) continue
    cpSync(join(ROOT, file), join(clone, file), { recursive: true })
  }
  symlinkSync(join(ROOT, 'node_modules'), join(clone, 'node_modules'))
  return clone
}

/** Installs the package that `npm pack` makes, with its dependencies and its command. */
function installPackage(clone: string): string {
  const project = join(folder, 'project')
  const modules = join(project, 'node_modules')
  mkdirSync(join(modules, '.bin'), { recursive: true })
  const packed = execFileSync('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder], {
    cwd: clone,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [{ filename }] = JSON.parse(packed) as [{ filename: string }]
  execFileSync('tar', ['-xzf', join(folder, filename), '-C', modules])
  cpSync(join(modules, 'package'), join(modules, 'annals'), { recursive: true })
  const { dependencies, bin } = JSON.parse(readFileSync(join(modules, 'annals', 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>
    bin: { annals: string }
  }
  for (const name of Object.keys(dependencies)) {
    mkdirSync(dirname(join(modules, name)), { recursive: true })
    symlinkSync(join(ROOT, 'node_modules', name), join(modules, name))
  }
  symlinkSync(join('..', 'annals', bin.annals), join(modules, '.bin', 'annals'))
  return project
}

test('npm start, annals demo, and the commands that the demo suggests work', async () => {
  const clone = cloneRepository()
  // In its own process group, so that npm, its shell and the server end together.
  server = spawn('npm', ['start', '--', '--port', '0'], {
    cwd: clone,
    env: ENV,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let said = ''
  await new Promise<void>((resolve, reject) => {
    server?.stderr?.on('data', (chunk: Buffer) => {
      said += String(chunk)
      if (said.includes('Ctrl-C stops it.')) resolve()
    })
    server?.once('close', code => reject(new Error(`npm start ended with ${code}: ${said}`)))
  })
  const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(said) ?? []
  const project = installPackage(clone)
  const annals = (...args: readonly string[]): { readonly status: number | null; readonly out: string } => {
    // By its name, as in a shell, which proves that the file is executable.
    const path = `${join(project, 'node_modules', '.bin')}:${process.env['PATH']}`
    const { status, stdout, stderr, error } = spawnSync('annals', args, {
      cwd: project,
      env: { ...ENV, PATH: path, ANNALS_SERVER: url },
      encoding: 'utf8',
      timeout: 60_000,
    })
    if (error !== undefined) throw error
    return { status, out: `${stdout}${stderr}` }
  }

  const demo = annals('demo')
  expect(demo).toMatchObject({ status: 0 })
  expect(demo.out).toMatch(/kill -9 \d+/)
  const [runId] = /demo-\d{8}T\d{6}Z/.exec(demo.out) ?? []
  const runs = annals('runs')
  expect(runs.out).toMatch(new RegExp(`^${runId} +Completed`, 'm'))
  expect(annals('show', runId as string).out).toMatch(/^status +Completed$/m)
  expect(annals('verify').out).toBe('consistent  1 run\n')
  expect(annals('export', runId as string, '-o', 'demo.bundle').status).toBe(0)
  const sound = annals('verify-bundle', 'demo.bundle')
  expect(sound).toMatchObject({ status: 0 })
  expect(sound.out).toContain('consistent  demo.bundle')
  const bundle = join(project, 'demo.bundle')
  writeFileSync(bundle, readFileSync(bundle, 'utf8').replace('"draft/ring/1"', '"draft/rung/1"'))
  const tampered = annals('verify-bundle', 'demo.bundle')
  expect(tampered.status).toBe(1)
  expect(tampered.out).toMatch(/CHANGED {2}demo\.bundle, line \d+/)

  process.kill(-(server.pid as number), 'SIGTERM')
  // `close`, not `exit`: npm may end before the server, which holds its streams.
  await once(server, 'close')
  server = undefined
}, 120_000)
