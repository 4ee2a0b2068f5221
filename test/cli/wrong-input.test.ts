import { spawnSync } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { annals, makeStore, newFolder, PROGRAM } from './annals-command.ts'

/** Wrong input: each error says what to do, and nothing is created or changed. */

const READS = ['runs', 'show x', 'events x', 'verify', 'replay x', 'snapshot x', 'traces x', 'export x']

describe('a folder', () => {
  test.each([...READS, 'doctor'])('without a store is an error, not an empty list: %s', async command => {
    const folder = newFolder()
    mkdirSync(folder)
    writeFileSync(join(folder, 'notes.txt'), 'mine')
    const { code, stdout, stderr } = await annals([...command.split(' '), '--data', folder])
    expect(`${stdout}${stderr}`).toMatch(/there is no store in/i)
    expect(code).toBe(command === 'doctor' ? 1 : 4)
  })

  test.each(['token list', 'token revoke x', 'resume x'])(
    'that does not exist is not created by %s',
    async command => {
      const folder = newFolder()
      const { code, stderr } = await annals([...command.split(' '), '--data', folder])
      expect(code).toBe(4)
      expect(stderr).toContain(`there is no store in ${folder}`)
      expect(existsSync(folder)).toBe(false)
    },
  )

  test.each([...READS, 'serve', 'token create', 'doctor'])(
    'that is a file is reported as such: %s',
    async command => {
      const file = `${newFolder()}.txt`
      writeFileSync(file, 'mine')
      const { code, stdout, stderr } = await annals([...command.split(' '), '--data', file])
      expect(`${stdout}${stderr}`).toContain(`${file} is a file`)
      expect(code).toBe(command === 'doctor' ? 1 : 2)
    },
  )

  test.each(['runs', 'serve', 'doctor'])('with an empty name is a usage error: %s', async command => {
    const { code, stderr } = await annals([command, '--data', ''])
    expect(code).toBe(2)
    expect(stderr).toContain('--data is empty; give the folder of a store')
  })

  test('of launches that is a file is a usage error', async () => {
    const file = `${newFolder()}.txt`
    writeFileSync(file, 'mine')
    const { code, stderr } = await annals([
      'telemetry',
      'flush',
      '--url',
      'http://127.0.0.1:1',
      '--runs',
      file,
    ])
    expect(code).toBe(2)
    expect(stderr).toContain(`${file} is a file; --runs takes a folder`)
  })
})

describe('an address', () => {
  test.each(['nonsense', 'ftp://x', '127.0.0.1:8765'])('%s is not an address of a server', async url => {
    for (const command of ['runs', 'demo']) {
      const { code, stderr } = await annals([command, '--server', url])
      expect(code, command).toBe(2)
      expect(stderr).toContain(`--server must be an address such as http://127.0.0.1:8765, not "${url}"`)
    }
  })

  test('where no server listens is reported', async () => {
    const server = createServer()
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    await new Promise(resolve => server.close(resolve))
    const { code, stderr } = await annals(['runs', '--server', `http://127.0.0.1:${port}`])
    expect(code).toBe(4)
    expect(stderr).toContain(`no server answers at http://127.0.0.1:${port} (ECONNREFUSED)`)
  })

  test.each(['nonsense', 'http://127.0.0.1:5432'])('%s is not an address of PostgreSQL', async url => {
    const { code, stderr } = await annals(['runs', '--postgres', url])
    expect(code).toBe(2)
    expect(stderr).toContain('--postgres must be an address such as postgres://localhost/runs')
  })

  test('of a schema without PostgreSQL is a usage error', async () => {
    const { code, stderr } = await annals(['runs', '--schema', 'other', '--data', newFolder()])
    expect(code).toBe(2)
    expect(stderr).toContain('--schema needs --postgres')
  })
})

describe('a server that is not Annals', () => {
  let server: Server
  let url = ''
  let body = ''
  beforeAll(async () => {
    server = createServer((request, response) => {
      request.resume()
      response.writeHead(200, { 'Content-Type': 'text/html' }).end(body)
    })
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  })
  afterAll(() => new Promise(resolve => server.close(resolve)))

  test.each([...READS, 'token list'])('is recognized: %s', async command => {
    for (const each of ['<html></html>', '{}', '[]', '"hello"', 'null', '']) {
      body = each
      const { code, stdout, stderr } = await annals([...command.split(' '), '--server', url])
      expect({ code, stdout, stderr }, each).toEqual({
        code: 4,
        stdout: '',
        stderr: `annals: the program that answers at ${url} is not an annals server\n`,
      })
    }
  })
})

describe('a module', () => {
  test('without a launch is an error with advice', async () => {
    const folder = newFolder()
    mkdirSync(folder)
    const files: readonly (readonly [name: string, text: string, said: string])[] = [
      ['a.ts', '', 'compile it first and pass the .js file'],
      ['b.mjs', 'export const a = 1', 'it exports no launch; export what defineLaunch returns'],
      ['c.mjs', 'export const =', 'Unexpected token'],
    ]
    for (const [name, text, said] of files) {
      const file = join(folder, name)
      writeFileSync(file, text)
      const { code, stderr } = await annals([
        'serve',
        '--port',
        '0',
        '--launch',
        file,
        '--data',
        join(folder, 's'),
      ])
      expect(code, name).toBe(2)
      expect(stderr).toContain(`annals: cannot load ${file}: `)
      expect(stderr).toContain(said)
    }
    const missing = await annals(['serve', '--launch', join(folder, 'no.js')])
    expect(missing.stderr).toContain(`cannot load ${join(folder, 'no.js')}: there is no such file`)
    expect(existsSync(join(folder, 's'))).toBe(false)
  })
})

describe('output', () => {
  test('to a full device is an error, for a table and for JSON', async () => {
    const data = await makeStore()
    for (const more of [[], ['--json']]) {
      const full = openSync('/dev/full', 'w')
      const { status, stderr } = spawnSync(process.execPath, [PROGRAM, 'runs', '--data', data, ...more], {
        stdio: ['ignore', full, 'pipe'],
        encoding: 'utf8',
      })
      closeSync(full)
      expect({ status, stderr }).toEqual({
        status: 1,
        stderr: expect.stringContaining('annals: cannot write: ENOSPC'),
      })
    }
  })

  test('--json leaves stdout empty when a command fails: stderr has the message, the exit code the kind', async () => {
    const data = await makeStore()
    for (const command of [
      'show nobody',
      'events nobody',
      'snapshot nobody',
      'traces nobody',
      'replay nobody',
    ]) {
      const { code, stdout, stderr } = await annals([...command.split(' '), '--json', '--data', data])
      expect({ code, stdout }, command).toEqual({ code: 3, stdout: '' })
      expect(stderr).toMatch(/^annals: there is no run "nobody"/)
    }
  })
})

test('the help explains the exit codes', async () => {
  const { stdout } = await annals(['--help'])
  expect(stdout).toContain('0 success')
  expect(stdout).toContain('2 usage error')
  expect(stdout).toContain('70 internal error (a bug in Annals)')
})
