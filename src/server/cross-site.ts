import { AnnalsError } from '../core/errors.ts'
import { PAGE_FILES } from './page-files.ts'
import { headerOf } from './request-header.ts'
import type { ServerContext } from './server-env.ts'

/** Requests of this server's pages, and addresses typed by a person. */
const OWN_SITES: ReadonlySet<string> = new Set(['same-origin', 'none'])
const PAGES: ReadonlySet<string> = new Set(
  PAGE_FILES.filter(([, , type]) => type === 'text/html').map(([path]) => path),
)

/**
 * Refuses requests that a page of another site makes a browser send (`Sec-Fetch-Site`). Such a page cannot read the answer, but
 * its images, forms and streams would reach a local server. Programs do not send the header. A link to one of our own pages is
 * allowed. A page on another port of this machine is `same-site`; it belongs to another program, so it is refused too.
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
