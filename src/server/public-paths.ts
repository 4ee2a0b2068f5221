import { PAGE_PATHS } from './page-files.ts'

const PUBLIC: ReadonlySet<string> = new Set(['/health', '/ready', '/openapi.json', ...PAGE_PATHS])

/** Whether a path needs no token, because it has no data of users. */
export function isPublic(path: string): boolean {
  return PUBLIC.has(path)
}
