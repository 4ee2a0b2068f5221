import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Every commit has the same author and time, so running the launch twice gives the same commit. */
const IDENTITY = {
  GIT_AUTHOR_NAME: 'Docs Launch',
  GIT_AUTHOR_EMAIL: 'docs@example.com',
  GIT_AUTHOR_DATE: '2026-01-28T00:00:00Z',
  GIT_COMMITTER_NAME: 'Docs Launch',
  GIT_COMMITTER_EMAIL: 'docs@example.com',
  GIT_COMMITTER_DATE: '2026-01-28T00:00:00Z',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_SYSTEM: '/dev/null',
}

/** Runs git in a folder and returns its output. */
export async function git(folder: string, args: readonly string[], signal?: AbortSignal): Promise<string> {
  const env = { ...process.env, ...IDENTITY }
  const { stdout } = await run('git', [...args], {
    cwd: folder,
    env,
    ...(signal === undefined ? {} : { signal }),
  })
  return stdout.trim()
}
