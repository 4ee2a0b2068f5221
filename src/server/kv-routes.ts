import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import { withoutUndefined } from '../core/options.ts'
import { longPage, serve } from './endpoint.ts'
import { Page } from './paging.ts'
import { json } from './reply.ts'
import { flag, limitUpTo, text, value, whole } from './schemas.ts'
import type { ServerEnv } from './server-env.ts'
import { etagOf, readValue, VALUE_TYPES, valueBody, valueResponse } from './value-body.ts'

const LIMIT_MAX = 10_000
const LIMIT_DEFAULT = 1_000

/** Routes for the key-value entries of a run. */
export function serveKv(app: OpenAPIHono<ServerEnv>): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/kv',
      id: 'listKv',
      load: longPage,
      summary: 'The keys in byte order; with `values=true`, also their values.',
      query: {
        prefix: text.optional(),
        after: text.optional(),
        values: flag.optional(),
        limit: limitUpTo(LIMIT_MAX, LIMIT_DEFAULT),
      },
      answers: {
        200: [
          'A page of entries; `next` is the `after` of the next page.',
          z.object({
            entries: z.array(z.object({ key: z.string(), value: value.optional() })),
            next: z.string().optional(),
          }),
        ],
      },
    },
    async ({ c, run: runId, query: { prefix, after, limit, values = false } }) => {
      const { kv } = c.get('db')
      // One more than the page, to know whether it is the last.
      const keys = await kv.list(runId, withoutUndefined({ prefix, after, limit: limit + 1 }))
      const page = new Page(limit)
      let count = 0
      while (count < keys.length && !page.isFull) {
        const key = keys[count++]
        // One at a time, because each value may be large.
        const found = values ? await kv.get(runId, key) : null
        if (!values) page.add({ key })
        else if (found !== undefined) await page.addValues({ key, value: found })
      }
      return page.reply('entries', count < keys.length ? keys[count - 1] : undefined)
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/kv/{key}',
      id: 'getKv',
      summary:
        'Returns the value: bytes as they are, other values as JSON. `ETag` is its version, `Annals-Updated-At` the time of its last write.',
      refusals: ['NOT_FOUND'],
      answers: { 200: ['The value.', value, ...VALUE_TYPES] },
    },
    async ({ c, run: runId, ids: { key } }) => {
      const found = await c.get('db').kv.getVersioned(runId, key)
      if (found === undefined) throw new AnnalsError('NOT_FOUND', 'this key does not exist', { key })
      const { value: stored, version, updatedAt } = found
      return valueResponse(stored, { ETag: etagOf(version), 'Annals-Updated-At': `${updatedAt}` })
    },
  )
  serve(
    app,
    {
      method: 'put',
      path: '/v1/runs/{runId}/kv/{key}',
      id: 'putKv',
      summary: 'Writes the value and replaces an earlier one.',
      query: { ttlMs: whole.optional() },
      rawBody: valueBody,
      answers: { 200: ['The key that was written.', z.object({ key: z.string() })] },
    },
    async ({ c, run: runId, ids: { key }, query: { ttlMs } }) => {
      await c.get('db').kv.put(runId, key, await readValue(c), withoutUndefined({ ttlMs }))
      return json({ key })
    },
  )
  serve(
    app,
    {
      method: 'delete',
      path: '/v1/runs/{runId}/kv/{key}',
      id: 'deleteKv',
      summary: 'Deletes the key.',
      answers: { 200: ['Whether it existed.', z.object({ deleted: z.boolean() })] },
    },
    async ({ c, run: runId, ids: { key } }) => json({ deleted: await c.get('db').kv.delete(runId, key) }),
  )
}
