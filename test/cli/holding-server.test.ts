import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { type Annals, open } from '../../src/index.ts'
import { addRun, annals, newFolder, type Running, start } from './annals-command.ts'

/** Which server a command uses if its folder is open in another process. */

const opened: Annals[] = []
const fakes: Server[] = []
afterEach(async () => {
  for (const db of opened.splice(0)) await db.close()
  for (const fake of fakes.splice(0)) fake.close()
})

/** A store with one run, which this process keeps open. */
async function held(runId: string, folder = newFolder()): Promise<{ folder: string; db: Annals }> {
  const db = await open({ path: folder })
  opened.push(db)
  await addRun(db, runId)
  return { folder, db }
}

async function serve(
  data: string,
  env: NodeJS.ProcessEnv = {},
): Promise<Running & { readonly url: string; readonly file: string }> {
  const running = start(['serve', '--data', data, '--port', '0'], { env })
  await running.printed('Ctrl-C stops it.')
  const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(running.said()) ?? []
  return { ...running, url: url as string, file: join(data, 'server.json') }
}

async function stop(running: Running): Promise<void> {
  running.child.kill('SIGTERM')
  expect((await running.ended).code).toBe(0)
}

/** Starts a fake server with this identity. It records the requests. */
async function pretend(
  identity: (request: IncomingMessage) => { readonly status: number; readonly body: unknown },
): Promise<{ readonly url: string; readonly asked: IncomingMessage[] }> {
  const asked: IncomingMessage[] = []
  const fake = createServer((request, response) => {
    asked.push(request)
    const { status, body } = identity(request)
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
  })
  fakes.push(fake)
  await new Promise<void>(resolve => fake.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${(fake.address() as AddressInfo).port}`, asked }
}

const announce = (folder: string, url: string): void =>
  writeFileSync(join(folder, 'server.json'), JSON.stringify({ url, pid: process.pid }))

const folderOf = (path: string): { readonly device: string; readonly inode: string } => {
  const { dev, ino } = statSync(path, { bigint: true })
  return { device: String(dev), inode: String(ino) }
}

describe('a folder that is open elsewhere', () => {
  const COMMANDS = [['runs'], ['show', 'theirs'], ['verify'], ['token', 'create'], ['resume', 'theirs']]

  test('is not confused with the store of another server that answers', async () => {
    const theirs = newFolder()
    const { db } = await held('theirs', theirs)
    await db.close()
    const server = await serve(theirs)
    const { folder } = await held('ours')
    announce(folder, server.url)
    for (const command of COMMANDS) {
      const { code, stdout, stderr } = await annals([...command, '--data', folder])
      expect({ code, stdout }, command.join(' ')).toEqual({ code: 4, stdout: '' })
      expect(stderr).toContain(
        `${folder} is open in another process, and the server at ${server.url} has another store`,
      )
    }
    // --server is used as given.
    const named = await annals(['runs', '--server', server.url])
    expect(named.stdout).toContain('theirs')
    await stop(server)
  })

  test('is not confused with the folder that it was copied from', async () => {
    const original = newFolder()
    const { db } = await held('theirs', original)
    await db.close()
    const server = await serve(original)
    const copy = newFolder()
    cpSync(original, copy, { recursive: true })
    const { db: ours } = await held('ours', copy)
    expect(ours.stats().storeId).toBe(
      JSON.parse(await (await fetch(`${server.url}/v1/store`)).text()).storeId,
    )
    expect(readFileSync(join(copy, 'server.json'), 'utf8')).toContain(server.url)
    const { code, stdout, stderr } = await annals(['runs', '--data', copy])
    expect({ code, stdout }).toEqual({ code: 4, stdout: '' })
    expect(stderr).toContain('has another store')
    await stop(server)
  })

  test('is found under any path that leads to it', async () => {
    const folder = newFolder()
    const { db } = await held('theirs', folder)
    await db.close()
    const server = await serve(folder)
    const link = newFolder()
    symlinkSync(folder, link)
    for (const name of [folder, link, `${folder}/`, `./${folder.slice(dirname(folder).length + 1)}`]) {
      const { code, stdout } = await annals(['runs', '--data', name], { cwd: dirname(folder) })
      expect({ code, stdout }, name).toEqual({ code: 0, stdout: expect.stringContaining('theirs') })
    }
    await stop(server)
  })

  test('is identified by its store id too, because another machine may have the same inode', async () => {
    const { folder, db } = await held('ours')
    const same = folderOf(folder)
    const { storeId } = db.stats()
    const answers: readonly (readonly [body: unknown, code: number])[] = [
      [{ storeId: '0'.repeat(32), folder: same }, 4],
      [{ storeId, folder: { ...same, inode: '1' } }, 4],
      [{ storeId, folder: { ...same, device: '1' } }, 4],
      [{ storeId }, 4],
      [{}, 4],
      [[], 4],
      [null, 4],
      [{ storeId, folder: same }, 0],
    ]
    for (const [body, code] of answers) {
      const fake = await pretend(({ url }) => ({
        status: 200,
        body: url === '/v1/store' ? body : { runs: [] },
      }))
      announce(folder, fake.url)
      const outcome = await annals(['runs', '--data', folder, '--json'], { env: { ANNALS_TOKEN: 'secret' } })
      expect(outcome.code, JSON.stringify(body)).toBe(code)
      const tokens = fake.asked.map(({ headers }) => headers.authorization)
      // The token must not be sent to an unknown server.
      if (code !== 0) expect(tokens, JSON.stringify(body)).toEqual([undefined])
      else expect(tokens.at(-1)).toBe('Bearer secret')
    }
  })

  test.each([404, 403, 500])(
    'whose server answers %i when it is asked for its store, is reported with that answer',
    async status => {
      const { folder } = await held('ours')
      const fake = await pretend(() => ({ status, body: { code: 'NOT_FOUND', detail: 'no', status } }))
      announce(folder, fake.url)
      const { code, stdout, stderr } = await annals(['runs', '--data', folder])
      expect({ code, stdout }).toEqual({ code: 4, stdout: '' })
      expect(stderr).toContain(`does not tell which store it has`)
    },
  )

  test('whose server needs a token is reported as such', async () => {
    const folder = newFolder()
    const made = await annals(['token', 'create', '--role', 'admin', '--data', folder])
    const server = await serve(folder, {
      TELEMETRY_API_AUTH_ENABLED: '1',
      TELEMETRY_API_AUTH_TOKEN: 'static-token',
    })
    expect((await fetch(`${server.url}/v1/store`)).status).toBe(401)
    const without = await annals(['runs', '--data', folder])
    expect(without.code).toBe(4)
    expect(without.stderr).toContain(
      `the server at ${server.url} has it open and needs a token. Set ANNALS_TOKEN`,
    )
    const wrong = await annals(['runs', '--data', folder], { env: { ANNALS_TOKEN: 'annals_wrong' } })
    expect(wrong.code).toBe(4)
    const right = await annals(['runs', '--data', folder, '--json'], {
      env: { ANNALS_TOKEN: made.stdout.trim() },
    })
    expect(right).toMatchObject({ code: 0, stdout: '[]\n' })
    await stop(server)
  })
})

describe('the address of a server in its folder', () => {
  test('replaces a symbolic link and never writes through it', async () => {
    const folder = newFolder()
    mkdirSync(folder)
    const target = `${newFolder()}.precious`
    writeFileSync(target, 'precious')
    symlinkSync(target, join(folder, 'server.json'))
    const server = await serve(folder)
    expect(readFileSync(target, 'utf8')).toBe('precious')
    expect(lstatSync(server.file).isFile()).toBe(true)
    expect(lstatSync(server.file).mode & 0o777).toBe(0o644)
    expect(JSON.parse(readFileSync(server.file, 'utf8'))).toEqual({ url: server.url, pid: server.child.pid })
    expect((await annals(['runs', '--data', folder, '--json'])).stdout).toBe('[]\n')
    await stop(server)
    expect(readdirSync(folder).filter(name => name.startsWith('server'))).toEqual([])
    expect(readFileSync(target, 'utf8')).toBe('precious')
  })

  test('that cannot be written is a warning, and the server starts', async () => {
    const folder = newFolder()
    mkdirSync(join(folder, 'server.json', 'full'), { recursive: true })
    const server = await serve(folder)
    expect(server.said()).toContain(`warning: cannot write ${server.file}`)
    expect(server.said()).toContain(`need --server ${server.url}`)
    expect((await annals(['runs', '--server', server.url, '--json'])).stdout).toBe('[]\n')
    await stop(server)
    expect(existsSync(join(folder, 'server.json', 'full'))).toBe(true)
  })

  const asRoot = process.getuid?.() === 0
  test.each([
    [
      'is a link',
      (file: string) => {
        writeFileSync(`${file}.real`, readFileSync(file))
        execFileSync('ln', ['-sf', `${file}.real`, file])
      },
      'is not a regular file',
    ],
    [
      'is a named pipe',
      (file: string) => execFileSync('sh', ['-c', `rm '${file}' && mkfifo '${file}'`]),
      'is not a regular file',
    ],
    [
      'is too long',
      (file: string) => writeFileSync(file, `${readFileSync(file, 'utf8')}${' '.repeat(5_000)}`),
      'is longer than',
    ],
    ['is writable by everyone', (file: string) => chmodSync(file, 0o646), 'is writable by other users'],
    ['is writable by the group', (file: string) => chmodSync(file, 0o664), 'is writable by other users'],
    ...(asRoot
      ? [
          [
            'belongs to another user',
            (file: string) => chownSync(file, 12_345, 12_345),
            'belongs to another user',
          ] as const,
        ]
      : []),
  ] as readonly (readonly [string, (file: string) => void, string])[])(
    'is ignored if the file %s',
    async (_, change, why) => {
      const { folder, db } = await held('ours')
      const { storeId } = db.stats()
      const body = { storeId, folder: folderOf(folder) }
      const fake = await pretend(() => ({ status: 200, body }))
      announce(folder, fake.url)
      change(join(folder, 'server.json'))
      const { code, stderr } = await annals(['runs', '--data', folder])
      expect(code).toBe(4)
      expect(fake.asked).toEqual([])
      expect(stderr).toContain(`server.json is ignored: it ${why}`)
    },
  )
})
