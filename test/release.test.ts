import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'

test('a release without a public address is refused before anything runs', () => {
  const { status, stderr } = spawnSync(process.execPath, ['scripts/release.mjs', '--dry-run'], {
    encoding: 'utf8',
  })
  expect(status).toBe(1)
  expect(stderr).toContain('package.json has no public address yet')
})
