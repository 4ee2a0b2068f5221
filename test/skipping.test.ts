import { execFile } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, test } from 'vitest'
import { mustRunAll, skipBecause } from './skipping.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const VITEST = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs')

describe('skipping tests', () => {
  test.each([
    [undefined, false],
    ['', false],
    ['0', false],
    ['false', false],
    ['FALSE', false],
    ['1', true],
    ['true', true],
    ['yes', true],
  ])('with CI=%s every test must run: %s', (CI, must) => {
    expect(mustRunAll(CI === undefined ? {} : { CI })).toBe(must)
  })

  test('a skip prints its reason; where every test must run it is an error with that reason', () => {
    const printed: string[] = []
    skipBecause('there is no PostgreSQL', {}, line => printed.push(line))
    expect(printed).toEqual(['SKIPPED: there is no PostgreSQL'])
    expect(() => skipBecause('there is no PostgreSQL', { CI: 'true' })).toThrow(
      'there is no PostgreSQL. CI is set, so no test may be skipped',
    )
  })
})

describe('a run of the tests on a machine that lacks something', () => {
  /** A folder in which the configuration finds tests. No other test uses it, and it is removed at the end. */
  const folder = join(ROOT, 'test', `skipping-${process.pid}`)
  mkdirSync(folder)
  afterAll(() => rmSync(folder, { recursive: true }))
  const fileWith = (name: string, source: string): string => {
    const path = join(folder, `${name}.test.ts`)
    writeFileSync(path, source)
    return path
  }

  function runTests(
    file: string,
    env: NodeJS.ProcessEnv,
  ): Promise<{ readonly code: number; readonly output: string }> {
    const { CI: _, ...outside } = process.env
    const options = { cwd: ROOT, env: { ...outside, ...env } }
    return new Promise(resolve => {
      execFile(process.execPath, [VITEST, 'run', file], options, (error, stdout, stderr) => {
        const code = error === null ? 0 : Number(error.code)
        resolve({ code, output: stdout + stderr })
      })
    })
  }

  const PASSING = "import { test } from 'vitest'\ntest('passes', () => {})\n"
  const SKIPPING = "import { test } from 'vitest'\ntest.skip('left out', () => {})\n"
  const NO_POSTGRES = { ANNALS_TEST_PG_BIN: '/nowhere' }
  const NO_SERVER_NEEDED = { ANNALS_TEST_PG: 'postgres://nobody@127.0.0.1:1/none' }

  test('without PostgreSQL it fails in CI, and elsewhere says why tests are skipped', async () => {
    const file = fileWith('postgres', PASSING)
    const ci = await runTests(file, { ...NO_POSTGRES, CI: '1' })
    expect(ci.code).not.toBe(0)
    expect(ci.output).toContain('CI is set, so no test may be skipped')
    expect(ci.output).toContain('/nowhere')
    const elsewhere = await runTests(file, NO_POSTGRES)
    expect(elsewhere.output).toContain('SKIPPED: PostgreSQL does not start')
    expect(elsewhere.code).toBe(0)
  })

  test('without a browser it fails in CI, and elsewhere says why tests are skipped', async () => {
    const file = join(ROOT, 'test', 'browser', 'page.test.ts')
    const env = { ...NO_SERVER_NEEDED, ANNALS_TEST_CHROMIUM: '/nowhere/chromium' }
    const ci = await runTests(file, { ...env, CI: '1' })
    expect(ci.code).not.toBe(0)
    expect(ci.output).toContain('CI is set, so no test may be skipped')
    const elsewhere = await runTests(file, env)
    expect(elsewhere.output).toContain('SKIPPED: the browser does not start')
    expect(elsewhere.code).toBe(0)
  })

  test('a test that is skipped for any other reason fails the run in CI, and only there', async () => {
    const file = fileWith('skip', SKIPPING)
    const ci = await runTests(file, { ...NO_SERVER_NEEDED, CI: 'true' })
    expect(ci.code).not.toBe(0)
    expect(ci.output).toContain('skip.test.ts > left out')
    expect((await runTests(file, NO_SERVER_NEEDED)).code).toBe(0)
  })
})
