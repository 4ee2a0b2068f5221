import { AnnalsError } from '../core/errors.ts'
import { PAGE_FILES } from './page-files.ts'
import { headerOf } from './request-header.ts'
import type { ServerContext } from './server-env.ts'

/** Pages of this server, and addresses that a person types. */
const OWN_SITES: ReadonlySet<string> = new Set(['same-origin', 'none'])
const PAGES: ReadonlySet<string> = new Set(
  PAGE_FILES.filter(([, , type]) => type === 'text/html').map(([path]) => path),
)

/**
 * Refuses requests that a page of another site makes a browser send (`Sec-Fetch-Site`). Such a page can't read the answer,
 * but images, forms and streams of its making would reach a server that only this machine should reach. Programs don't
 * send the header. A link to one of our own pages is fine: its scripts then ask as `same-origin`. A page on another port
 * of this machine is `same-site`. It belongs to another program, so its requests are refused as well.
 */
export function checkSite(c: ServerContext, origins: readonly string[]): void {
  const site = headerOf(c, 'sec-fetch-site')
  if (site === undefined || OWN_SITES.has(site)) return
  const origin = headerOf(c, 'origin')
  if (origin !== undefined && origins.includes(origin)) return
  if (isLinkToPage(c)) return
  throw new AnnalsError('FORBIDDEN', 'pages of another site may not send requests to this server')
}

function isLinkToPage(c: ServerContext): boolean {
  return (
    c.req.method === 'GET' &&
    PAGES.has(c.req.path) &&
    headerOf(c, 'sec-fetch-mode') === 'navigate' &&
    headerOf(c, 'sec-fetch-dest') === 'document'
  )
}
