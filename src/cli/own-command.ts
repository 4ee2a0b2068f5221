import { realpathSync } from 'node:fs'
import { delimiter, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const NAME = 'annals'

/**
 * The command that runs this program again from the same folder: `annals` if it is on the PATH, else `npx annals` or
 * `node …/main.js`. The PATH inside `npx` and npm scripts does not count, because it ends with them.
 */
export function ownCommand(
  program: string = fileURLToPath(new URL('./main.js', import.meta.url)),
  env: NodeJS.ProcessEnv = process.env,
  folder: string = process.cwd(),
): string {
  const own = realOf(program)
  const places = env['npm_command'] === undefined ? (env['PATH'] ?? '').split(delimiter) : []
  if (places.some(place => place !== '' && realOf(join(place, NAME)) === own)) return NAME
  if (own?.split(sep).includes('node_modules') === true) return `npx ${NAME}`
  const path = relative(folder, program)
  return `node ${/\s/.test(path) ? JSON.stringify(path) : path}`
}

/** The path without symbolic links; undefined if it does not exist. */
function realOf(path: string): string | undefined {
  try {
    return realpathSync(path)
  } catch (error) {
    // A file that cannot be inspected cannot be run either.
    if ((error as NodeJS.ErrnoException).syscall !== undefined) return undefined
    throw error
  }
}
