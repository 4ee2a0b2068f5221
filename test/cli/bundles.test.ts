import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, test } from 'vitest'
import { open } from '../../src/index.ts'
import { addRun, annals, makeStore, newFolder, PROGRAM, start } from './annals-command.ts'

let data = ''
let folder = ''
let bundle = ''
beforeAll(async () => {
  data = await makeStore()
  folder = newFolder()
  mkdirSync(folder)
  bundle = join(folder, 'nightly-1.bundle')
  const { code, stderr } = await annals(['export', 'nightly-1', '--data', data, '-o', bundle])
  expect({ code, stderr }).toEqual({
    code: 0,
    stderr: `exported to ${bundle}; \`annals verify-bundle ${bundle}\` verifies it\n`,
  })
})

describe('export', () => {
  test('writes the same bytes to a pipe and to a file, and no other file', async () => {
    const { stdout, code } = await annals(['export', 'nightly-1', '--data', data])
    expect(code).toBe(0)
    expect(stdout).toBe(readFileSync(bundle, 'utf8'))
    expect(readdirSync(folder)).toEqual(['nightly-1.bundle'])
  })

  test('of an unknown run or into a missing folder exits with 3 and 4 and leaves no file', async () => {
    const missing = await annals(['export', 'nightly-9', '--data', data, '-o', join(folder, 'x')])
    expect(missing.code).toBe(3)
    expect(missing.stderr).toContain('did you mean "nightly-1" or "nightly-2"?')
    const nowhere = await annals(['export', 'nightly-1', '--data', data, '-o', join(folder, 'no', 'x')])
    expect(nowhere.code).toBe(4)
    expect(readdirSync(folder)).toEqual(['nightly-1.bundle'])
  })
})

describe('verify-bundle', () => {
  test('verifies a bundle without a store, from a file or a pipe', async () => {
    const { stdout, code } = await annals(['verify-bundle', bundle], { cwd: folder })
    expect(code).toBe(0)
    expect(stdout).toContain(`consistent  ${bundle}\n`)
    expect(stdout).toMatch(/^ledger +8 events$/m)
    const piped = await annals(['verify-bundle', '-', '--json'], { input: readFileSync(bundle, 'utf8') })
    expect(piped.code).toBe(0)
    const report = JSON.parse(piped.stdout) as object
    expect(Object.keys(report)).toEqual([
      'isValid',
      'runId',
      'tenant',
      'records',
      'events',
      'snapshot',
      'sha256',
    ])
  })

  test('exits with 1 and names the line if a byte was changed', async () => {
    const changed = join(newFolder(), '..', 'changed.bundle')
    const lines = readFileSync(bundle, 'utf8').split('\n')
    lines[3] = lines[3].replace('"rows":42', '"rows":43')
    writeFileSync(changed, lines.join('\n'))
    const { stdout, code } = await annals(['verify-bundle', changed])
    expect(code).toBe(1)
    expect(stdout).toMatch(/^CHANGED {2}.*changed\.bundle, line 4: record 3 is not what it should be/)
    const json = await annals(['verify-bundle', changed, '--json'])
    expect(json.code).toBe(1)
    expect(JSON.parse(json.stdout)).toMatchObject({ isValid: false, line: 4 })
  })

  test.each([
    ['a text', Buffer.from('hello\nworld\n'), 'it does not begin like one'],
    ['JSON of something else', Buffer.from('{"a":1}\n'), 'it does not begin like one'],
    ['nothing at all', Buffer.alloc(0), 'it is empty'],
    ['bytes', Buffer.from([0, 255, 27, 91]), 'it does not begin like one'],
  ])('%s is NOT A BUNDLE, unlike CHANGED, and exits with 2', async (_, bytes, why) => {
    const file = join(newFolder(), '..', 'other.bundle')
    writeFileSync(file, bytes)
    const target = newFolder()
    for (const command of [
      ['verify-bundle', file],
      ['verify-bundle', file, '--json'],
      ['import', file, '--data', target],
    ]) {
      const { code, stdout, stderr } = await annals(command)
      expect({ code, stdout }, command.join(' ')).toEqual({ code: 2, stdout: '' })
      expect(stderr).toContain(`NOT A BUNDLE: ${file}: ${why}`)
    }
    expect(existsSync(target)).toBe(false)
    const piped = await annals(['verify-bundle', '-'], { input: bytes })
    expect(piped.code).toBe(2)
    expect(piped.stderr).toContain(`NOT A BUNDLE: stdin: ${why}`)
  })

  test('for a gzipped bundle it prints a command that verifies it', async () => {
    const file = join(folder, 'nightly 1.bundle.gz')
    writeFileSync(file, gzipSync(readFileSync(bundle)))
    const { code, stderr } = await annals(['verify-bundle', file])
    expect(code).toBe(2)
    const [, hint] =
      /^annals: NOT A BUNDLE: .*: it is compressed with gzip; run: (gunzip .*)$/m.exec(stderr) ?? []
    const shell = `annals() { '${process.execPath}' '${PROGRAM}' "$@"; }; ${hint}`
    expect(execFileSync('bash', ['-c', shell], { encoding: 'utf8' })).toContain('consistent  -\n')
    rmSync(file)
  })

  test('reports a bundle with a damaged or cut first line as CHANGED', async () => {
    const text = readFileSync(bundle, 'utf8')
    for (const input of [
      text.slice(0, 5),
      text.slice(0, 40),
      text.replace('"annals-bundle":1', '"annals-bundle":2'),
    ]) {
      const { code, stdout } = await annals(['verify-bundle', '-'], { input })
      expect({ code, stdout }, input.slice(0, 40)).toEqual({
        code: 1,
        stdout: expect.stringMatching(/^CHANGED {2}/),
      })
    }
  })

  test('reads a named pipe only once, also for import', async () => {
    const shell = `'${process.execPath}' '${PROGRAM}' import <(cat '${bundle}') --data '${newFolder()}'`
    expect(execFileSync('bash', ['-c', shell], { encoding: 'utf8' })).toContain('imported  nightly-1')
  })

  test('of a missing file exits with 2', async () => {
    const { code, stderr } = await annals(['verify-bundle', join(folder, 'nothing')])
    expect(code).toBe(2)
    expect(stderr).toContain('`annals export RUN -o FILE` writes a bundle')
  })
})

describe('import', () => {
  test('creates the store if needed; importing again changes nothing', async () => {
    const target = newFolder()
    const first = await annals(['import', bundle, '--data', target])
    expect(first).toMatchObject({
      code: 0,
      stdout: 'imported  nightly-1: 8 events in the ledger, 0 events in its own log\n',
    })
    const again = await annals(['import', '-', '--data', target], { input: readFileSync(bundle, 'utf8') })
    expect(again).toMatchObject({ code: 0, stdout: 'nightly-1 is already in the store: nothing to do\n' })
    const json = await annals(['import', bundle, '--data', target, '--json'])
    expect(JSON.parse(json.stdout)).toEqual({ runId: 'nightly-1', records: 0, events: 0 })
    expect((await annals(['export', 'nightly-1', '--data', target])).stdout).toBe(
      readFileSync(bundle, 'utf8'),
    )
    expect((await annals(['verify', '--data', target])).stdout).toBe('consistent  1 run\n')
  })

  test('refuses an invalid bundle and another run with the same id, and changes nothing', async () => {
    const target = newFolder()
    const db = await open({ path: target })
    await addRun(db, 'nightly-1')
    await db.close()
    const other = await annals(['import', bundle, '--data', target])
    expect(other.code).toBe(1)
    expect(other.stderr).toContain('this store has another run "nightly-1"')
    const cut = readFileSync(bundle, 'utf8').slice(0, -20)
    const broken = await annals(['import', '-', '--data', target], { input: cut })
    expect(broken.code).toBe(1)
    expect(broken.stderr).toContain('line 11 of the bundle: the line feed at the end of the line is missing')
    expect((await annals(['verify', '--data', target])).stdout).toBe('consistent  1 run\n')
  })

  test('imports for the tenant of the bundle unless --tenant names another', async () => {
    const source = newFolder()
    const db = await open({ path: source, tenant: 'acme' })
    await addRun(db, 'tenanted')
    await db.close()
    const { stdout } = await annals(['export', 'tenanted', '--data', source, '--tenant', 'acme'])
    const target = newFolder()
    const refused = await annals(['import', '-', '--data', target, '--tenant', 'umbrella'], { input: stdout })
    expect(refused.code).toBe(2)
    expect(refused.stderr).toContain('the bundle belongs to tenant "acme"')
    expect((await annals(['import', '-', '--data', target], { input: stdout })).code).toBe(0)
    expect((await annals(['runs', '--data', target, '--tenant', 'acme', '--json'])).stdout).toContain(
      'tenanted',
    )
    expect((await annals(['runs', '--data', target, '--json'])).stdout).toBe('[]\n')
  })

  test('killed during an import leaves a store that opens, and importing again completes it', async () => {
    const source = newFolder()
    const db = await open({ path: source, durability: 'relaxed' })
    const events = Array.from({ length: 15_000 }, (_, n) => ({
      type: 'note',
      payload: { n, text: 'x'.repeat(100) },
    }))
    for (let n = 0; n < events.length; n += 1_000)
      await db.events.appendBatch('long', events.slice(n, n + 1_000))
    await db.close()
    const long = join(folder, 'long.bundle')
    expect((await annals(['export', 'long', '--data', source, '-o', long])).code).toBe(0)
    const target = newFolder()
    const { child, ended } = start(['import', long, '--data', target])
    await new Promise<void>(resolve => {
      const timer = setInterval(() => {
        if (!existsSync(target) || !readdirSync(target).some(name => name.startsWith('wal-'))) return
        clearInterval(timer)
        resolve()
      }, 5)
    })
    child.kill('SIGKILL')
    await ended
    const { code, stdout } = await annals(['import', long, '--data', target])
    expect({ code, stdout }).toMatchObject({ code: 0 })
    expect((await annals(['export', 'long', '--data', target, '-o', `${long}.again`])).code).toBe(0)
    expect(readFileSync(`${long}.again`).equals(readFileSync(long))).toBe(true)
  })
})

test.each(['export', 'import', 'verify-bundle'])('%s --help has examples', async command => {
  const { stdout, code } = await annals([command, '--help'])
  expect(code).toBe(0)
  expect(stdout).toContain(`Examples:\n  annals ${command}`)
})
