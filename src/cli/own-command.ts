import { realpathSync } from 'node:fs'
import { delimiter, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const NAME = 'annals'

/**
 * What has to be typed to run this program again, where it was run: not everybody has it on the PATH. `npx` and scripts of
 * npm have, but for as long as they take.
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

/** Without links; undefined if there is nothing. */
function realOf(path: string): string | undefined {
  try {
    return realpathSync(path)
  } catch (error) {
    // Whatever keeps it from being looked at keeps it from being run.
    if ((error as NodeJS.ErrnoException).syscall !== undefined) return undefined
    throw error
  }
}
