import { PAGE_PATHS } from './page-files.ts'

const PUBLIC: ReadonlySet<string> = new Set(['/health', '/ready', '/openapi.json', ...PAGE_PATHS])

/** What needs no token: nothing in it is anybody's. Who may ask for the rest, its route says. */
export function isPublic(path: string): boolean {
  return PUBLIC.has(path)
}
