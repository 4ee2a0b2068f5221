import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { git } from './git.ts'

const FILES: Readonly<Record<string, string>> = {
  'src/stack.js': `/** Adds a value on top. */
export function push(stack, value) { return [...stack, value] }

/** The value on top. */
export function peek(stack) { return stack.at(-1) }
`,
  'src/queue.js': `/** Adds a value at the end. */
export function enqueue(queue, value) { return [...queue, value] }
`,
  'src/ring.js': `/** Turns the ring by one. */
export function turn([first, ...rest]) { return [...rest, first] }
`,
}

/** Makes a bare repository with a small library: the launch documents it, and its pull request goes there. */
export async function makeDemoRepository(folder: string): Promise<string> {
  const bare = join(folder, 'library.git')
  if (existsSync(bare)) return bare
  const work = join(folder, 'library')
  mkdirSync(join(work, 'src'), { recursive: true })
  for (const [path, text] of Object.entries(FILES)) writeFileSync(join(work, path), text)
  await git(work, ['init', '--quiet', '--initial-branch=main'])
  await git(work, ['add', '.'])
  await git(work, ['commit', '--quiet', '-m', 'A small library'])
  await git(folder, ['clone', '--quiet', '--bare', work, bare])
  return bare
}
