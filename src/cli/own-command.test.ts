import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { ownCommand } from './own-command.ts'

const root = mkdtempSync(join(tmpdir(), 'annals-own-command-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

function program(...path: readonly string[]): string {
  const file = join(root, ...path)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, '')
  return file
}

function linked(to: string, ...path: readonly string[]): string {
  const link = join(root, ...path)
  mkdirSync(dirname(link), { recursive: true })
  symlinkSync(to, link)
  return dirname(link)
}

test('is `annals` if the package is on the PATH', () => {
  const main = program('lib', 'node_modules', 'annals', 'dist', 'cli', 'main.js')
  const bin = linked(main, 'bin', 'annals')
  expect(ownCommand(main, { PATH: `/nowhere:${bin}` }, root)).toBe('annals')
})

test('is `npx annals` in a project with the package and under npx, whose PATH is gone afterwards', () => {
  const main = program('project', 'node_modules', 'annals', 'dist', 'cli', 'main.js')
  const bin = linked(main, 'project', 'node_modules', '.bin', 'annals')
  expect(ownCommand(main, { PATH: '/nowhere' }, root)).toBe('npx annals')
  expect(ownCommand(main, { PATH: bin, npm_command: 'exec' }, root)).toBe('npx annals')
})

test('is the path of the program in a clone, even if another one is on the PATH', () => {
  const main = program('my clone', 'dist', 'cli', 'main.js')
  const bin = linked(program('other', 'main.js'), 'other-bin', 'annals')
  expect(ownCommand(main, { PATH: bin }, join(root, 'my clone'))).toBe('node dist/cli/main.js')
  expect(ownCommand(main, { PATH: bin, npm_command: 'start' }, root)).toBe('node "my clone/dist/cli/main.js"')
})
