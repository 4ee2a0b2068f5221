/**
 * Compiles the campaigns of test/ to temp/programs/test, for tests that run them in processes of their own. The compiler
 * emits what they import from src/ too; a link to dist/ takes its place, so that campaigns and tests share one build.
 */
import { execFileSync } from 'node:child_process'
import { rmSync, symlinkSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const programs = `${root}temp/programs`

rmSync(programs, { recursive: true, force: true })
execFileSync(
  process.execPath,
  [`${root}node_modules/typescript/bin/tsc`, '-p', `${root}tsconfig.programs.json`],
  {
    stdio: 'inherit',
  },
)
rmSync(`${programs}/src`, { recursive: true })
symlinkSync(`${root}dist`, `${programs}/src`, 'junction')
