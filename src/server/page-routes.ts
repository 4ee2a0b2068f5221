import { readFileSync } from 'node:fs'
import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { STATUS_WORDS, VERDICT } from '../core/vocabulary.ts'
import { serve } from './endpoint.ts'
import { PAGE_FILES, VOCABULARY_PATH } from './page-files.ts'
import type { ServerEnv } from './server-env.ts'

/** Allows only the scripts and styles of this server, so that no payload can become one. */
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

const VOCABULARY_MODULE = [
  `export const STATUS_WORDS = ${JSON.stringify(STATUS_WORDS)}`,
  `export const VERDICT = ${JSON.stringify(VERDICT)}`,
].join('\n')

const SUMMARIES: Readonly<Record<string, string>> = {
  '/': 'The page that shows runs live.',
  '/docs': 'The page that shows this description.',
}

export function servePage(app: OpenAPIHono<ServerEnv>): void {
  for (const [path, file, type, id] of PAGE_FILES) {
    const content =
      path === VOCABULARY_PATH
        ? VOCABULARY_MODULE
        : readFileSync(new URL(`page/${file}`, import.meta.url), 'utf8')
    serve(
      app,
      {
        method: 'get',
        path,
        id,
        summary: SUMMARIES[path] ?? 'A file of the page.',
        answers: { 200: ['The file.', z.string(), type] },
      },
      () =>
        new Response(content, {
          headers: {
            'Content-Type': `${type}; charset=utf-8`,
            // Revalidated each time, because the next version of the server may have another page.
            'Cache-Control': 'no-cache',
            'Content-Security-Policy': POLICY,
            'Cross-Origin-Opener-Policy': 'same-origin',
            'Referrer-Policy': 'no-referrer',
          },
        }),
    )
  }
}
