import { readFileSync } from 'node:fs'
import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { serve } from './endpoint.ts'
import { PAGE_FILES } from './page-files.ts'
import type { ServerEnv } from './server-env.ts'

/** No script and no style but ours, and no text that becomes one, whatever is in the payloads. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

const SUMMARIES: Readonly<Record<string, string>> = {
  '/': 'A page that shows runs as they happen.',
  '/docs': 'A page to read this description.',
}

export function servePage(app: OpenAPIHono<ServerEnv>): void {
  for (const [path, file, type, id] of PAGE_FILES) {
    const content = readFileSync(new URL(`page/${file}`, import.meta.url))
    serve(
      app,
      {
        method: 'get',
        path,
        id,
        load: 'light',
        summary: SUMMARIES[path] ?? 'A part of the page.',
        answers: { 200: ['The file.', z.string(), type] },
      },
      () =>
        new Response(content, {
          headers: {
            'Content-Type': `${type}; charset=utf-8`,
            // Asked for again each time: the next version of the server has another page.
            'Cache-Control': 'no-cache',
            'Content-Security-Policy': POLICY,
            'Cross-Origin-Opener-Policy': 'same-origin',
            'Referrer-Policy': 'no-referrer',
          },
        }),
    )
  }
}
