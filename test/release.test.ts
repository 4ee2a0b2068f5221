import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'

const SCRIPT = 'scripts/release.mjs'

test('a release without a public address is refused before anything runs', () => {
  const { status, stderr } = spawnSync(process.execPath, [SCRIPT, '--dry-run'], { encoding: 'utf8' })
  expect(status).toBe(1)
  expect(stderr).toContain('package.json has no public address yet')
})

/** Each test releases from a repository of its own. `npm` and `.ci/run` are replaced by programs that record their calls. */
describe('a repository that could be released', () => {
  const folder = mkdtempSync(join(tmpdir(), 'annals-release-test-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  const recorded = join(folder, 'calls')
  const programs = join(folder, 'bin')
  let root = ''
  let count = 0

  function write(path: string, text: string): void {
    const file = join(root, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
  }
  function git(...args: readonly string[]): string {
    const identity = ['-c', 'user.name=test', '-c', 'user.email=test@example.com']
    return execFileSync('git', [...identity, ...args], { cwd: root, encoding: 'utf8' }).trim()
  }
  function release(...args: readonly string[]): {
    readonly status: number | null
    readonly stderr: string
    readonly calls: string[]
  } {
    const env: NodeJS.ProcessEnv = {
      ...process.env,
      PATH: `${programs}:${process.env['PATH']}`,
      RECORDED: recorded,
    }
    delete env['GITHUB_ACTIONS']
    const { status, stderr } = spawnSync(process.execPath, [SCRIPT, ...args], {
      cwd: root,
      env,
      encoding: 'utf8',
    })
    return { status, stderr, calls: readFileSync(recorded, 'utf8').trim().split('\n') }
  }

  beforeEach(() => {
    root = join(folder, `repository-${count++}`)
    mkdirSync(programs, { recursive: true })
    writeFileSync(join(programs, 'npm'), '#!/bin/sh\necho "npm $*" >> "$RECORDED"\n')
    chmodSync(join(programs, 'npm'), 0o755)
    writeFileSync(recorded, '')
    const address = 'https://git.example.com/annals'
    write(
      'package.json',
      JSON.stringify({
        version: '1.2.3',
        repository: { url: address },
        homepage: address,
        bugs: { url: address },
      }),
    )
    write('CHANGELOG.md', '# Changelog\n\n## 1.2.3 — 2026-01-28\n\n- Something new.\n')
    write('.ci/run', 'echo ci >> "$RECORDED"\n')
    cpSync(SCRIPT, join(root, SCRIPT))
    git('init', '--quiet', '--initial-branch=main')
    git('add', '.')
    git('commit', '--quiet', '-m', 'Everything')
  })

  test('a dry run checks everything and publishes nothing', () => {
    const { status, stderr, calls } = release('--dry-run')
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(calls).toEqual(['ci', 'npm publish --provenance --access public --dry-run'])
    expect(git('tag', '--list')).toBe('')
  })

  test('a real release outside of a CI is refused, because it would have no provenance', () => {
    const { status, stderr, calls } = release()
    expect(status).toBe(1)
    expect(stderr).toContain('run the workflow "Release"')
    expect(calls).toEqual([''])
  })

  test('a version that the changelog calls unreleased is refused', () => {
    write('CHANGELOG.md', '# Changelog\n\n## 1.2.3 — unreleased\n')
    git('commit', '--quiet', '-am', 'Not yet')
    expect(release('--dry-run')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('CHANGELOG.md has no section "## 1.2.3 — YYYY-MM-DD"'),
    })
  })

  test('uncommitted changes, another branch and a version that exists are refused', () => {
    write('stray.txt', '')
    git('checkout', '--quiet', '-b', 'topic')
    git('tag', 'v1.2.3')
    const { status, stderr, calls } = release('--dry-run')
    expect(status).toBe(1)
    expect(stderr).toContain('uncommitted changes')
    expect(stderr).toContain('from main, not from topic')
    expect(stderr).toContain('v1.2.3 is released already')
    expect(calls).toEqual([''])
  })
})
