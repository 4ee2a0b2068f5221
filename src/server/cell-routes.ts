import { type OpenAPIHono, z } from '@hono/zod-openapi'
import type { Annals } from '../annals.ts'
import { AnnalsError } from '../core/errors.ts'
import type { Value } from '../core/value.ts'
import type { Scope } from '../engine/keys.ts'
import { mediaType } from './body.ts'
import { serve } from './endpoint.ts'
import { BY_NAME, paged } from './paging.ts'
import { json, largeJson } from './reply.ts'
import { headerOf } from './request-header.ts'
import { cell, limitUpTo, pageOf, text } from './schemas.ts'
import type { ServerContext, ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'
import { etagOf, readValue, valueBody, versionIn } from './value-body.ts'

/** Routes for state cells. A version is an entity tag, and a compare-and-swap is a precondition. */
export function serveCells(app: OpenAPIHono<ServerEnv>, services: Services): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/cells',
      id: 'listCells',
      load: 'heavy',
      summary: 'The names of the cells in byte order.',
      query: { limit: limitUpTo(10_000, 1_000), after: text.optional() },
      answers: {
        200: ['A page of names; `next` is the `after` of the next page.', pageOf('cells', z.string())],
      },
    },
    async ({ c, run, query }) => paged('cells', await c.get('db').cells.list(run), BY_NAME, query),
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/cells/{name}',
      id: 'readCell',
      summary: 'Returns the cell. `ETag` is its version.',
      refusals: ['CELL_NOT_FOUND'],
      answers: { 200: ['The cell.', cell] },
    },
    async ({ c, run: runId, ids: { name } }) => {
      const found = await c.get('db').cells.read(runId, name)
      if (found === undefined) {
        throw new AnnalsError('CELL_NOT_FOUND', `there is no cell ${JSON.stringify(name)}`, { name })
      }
      return largeJson(found, 'value', 200, { ETag: etagOf(found.version) })
    },
  )
  serve(
    app,
    {
      method: 'put',
      path: '/v1/runs/{runId}/cells/{name}',
      id: 'writeCell',
      summary:
        'Writes the cell. With `If-Match: "3"`, only if it has that version; with `If-None-Match: *`, only if it does not exist.',
      headers: {
        'If-Match': text.optional(),
        'If-None-Match': text.optional(),
        'Idempotency-Key': text.optional(),
      },
      rawBody: valueBody,
      refusals: ['CELL_NOT_FOUND', 'CELL_EXISTS', 'VERSION_MISMATCH'],
      answers: { 200: ['The new version, also in `ETag`.', z.object({ version: z.number().int() })] },
    },
    async ({ c, run: runId, ids: { name } }) => {
      const given = await readValue(c)
      return services.answers.once(
        c,
        [mediaType(c), headerOf(c, 'if-match'), headerOf(c, 'if-none-match')],
        async () => {
          const version = await written(c, c.get('db'), runId, name, given)
          return json({ version }, 200, { ETag: etagOf(version) })
        },
      )
    },
  )
  serve(
    app,
    {
      method: 'delete',
      path: '/v1/runs/{runId}/cells/{name}',
      id: 'deleteCell',
      summary: 'Deletes the cell. If it is created again, its versions continue.',
      answers: { 200: ['Whether it existed.', z.object({ deleted: z.boolean() })] },
    },
    async ({ c, run: runId, ids: { name } }) =>
      json({ deleted: await c.get('db').cells.delete(runId, name) }),
  )
}

function written(
  c: ServerContext,
  { cells }: Annals,
  runId: Scope,
  name: string,
  given: Value,
): Promise<number> {
  const match = headerOf(c, 'if-match')
  const noneMatch = headerOf(c, 'if-none-match')
  if (match !== undefined && noneMatch !== undefined) {
    throw new AnnalsError('INVALID_ARGUMENT', 'If-Match and If-None-Match exclude each other', {
      name: 'If-Match',
    })
  }
  if (match !== undefined) return cells.cas(runId, name, versionIn(match, 'If-Match'), given)
  if (noneMatch === undefined) return cells.set(runId, name, given)
  if (noneMatch === '*') return cells.init(runId, name, given)
  throw new AnnalsError('INVALID_ARGUMENT', 'If-None-Match must be *', { name: 'If-None-Match' })
}
