import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { inSlot } from './admission.ts'
import { serve } from './endpoint.ts'
import { streamOf } from './piece-stream.ts'
import type { ServerEnv } from './server-env.ts'

const BUNDLE = z
  .string()
  .openapi({ description: 'Lines of JSON; docs/contracts/bundle.md defines the format.' })

/** The route that exports a run as a bundle. */
export function serveBundles(app: OpenAPIHono<ServerEnv>): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/bundle',
      id: 'exportRun',
      load: 'heavy',
      summary:
        'Exports the run as a bundle, which can be verified without a database and imported into another one.',
      refusals: ['RUN_NOT_FOUND'],
      answers: {
        200: ['The bundle. Without its last line, it is incomplete.', BUNDLE, 'application/x-ndjson'],
      },
    },
    async ({ c, run: runId }) => {
      const lines = c.get('db').exportRun(runId)
      // Reads the first line before answering, so that an unknown run is a 404.
      let next = await lines.next()
      const headers = { 'Content-Type': 'application/x-ndjson', 'Cache-Control': 'no-store' }
      if (c.req.method === 'HEAD') {
        await lines.return()
        return new Response(null, { headers })
      }
      const body = streamOf(
        async () => {
          if (next.done === true) return undefined
          const piece = next.value
          next = await inSlot(c, () => lines.next())
          return piece
        },
        () => lines.return(),
      )
      return new Response(body, { headers })
    },
  )
}
