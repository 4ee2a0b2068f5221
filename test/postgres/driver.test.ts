import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const DIST = fileURLToPath(new URL('../../dist', import.meta.url))

test('annals/postgres without pg names the missing package and the command that installs it', async () => {
  // Outside this project, so that its node_modules are not found.
  const folder = mkdtempSync(join(tmpdir(), 'annals-driver-'))
  try {
    cpSync(DIST, join(folder, 'dist'), { recursive: true })
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
    const script = `
      const { openPostgres } = await import('./dist/postgres.js')
      const error = await openPostgres({ connectionString: 'postgres://nobody@127.0.0.1:1/none' }).catch(e => e)
      console.log(JSON.stringify({ name: error.name, code: error.code, message: error.message, details: error.details }))`
    const options = { cwd: folder }
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ['--input-type=module', '-e', script],
      options,
    )
    expect(JSON.parse(stdout)).toEqual({
      name: 'AnnalsError',
      code: 'INVALID_OPERATION',
      message: 'annals/postgres needs the package pg, which is not installed: npm install pg',
      details: { package: 'pg' },
    })
  } finally {
    rmSync(folder, { recursive: true })
  }
})
