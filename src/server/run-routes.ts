import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError, type ErrorCode } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { withoutUndefined } from '../core/options.ts'
import { fromLargeJson } from '../core/value-json.ts'
import { DEFAULT_PART, namespace, type Scope } from '../engine/keys.ts'
import type { Run } from '../primitives/run.ts'
import type { Runs } from '../primitives/run-index.ts'
import type { RunQuery } from '../primitives/run-query.ts'
import { notFound } from '../primitives/run-records.ts'
import { serve } from './endpoint.ts'
import { cursorOf, Page, pageOfEach, partsOf } from './paging.ts'
import { runIdOf } from './path-ids.ts'
import { json, largeJson, type Reply } from './reply.ts'
import {
  cursor,
  flag,
  limitUpTo,
  MIB,
  pageOf,
  RECORD_BYTES_MAX,
  run,
  runStatus,
  text,
  texts,
  tombstone,
  value,
  whole,
} from './schemas.ts'
import type { ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'

const LIMIT_MAX = 1_000
const LIMIT_DEFAULT = 100
const tags = z.array(z.string()).max(1_000)

/** Routes of the run index. */
export function serveRuns(app: OpenAPIHono<ServerEnv>, services: Services): void {
  serveQueries(app)
  serve(
    app,
    {
      method: 'post',
      path: '/v1/runs',
      id: 'createRun',
      summary: 'Creates a run.',
      headers: { 'Idempotency-Key': text.optional() },
      body: z.strictObject({
        runId: z.string().optional(),
        tenant: z.string().optional(),
        app: z.string().optional(),
        agent: z.string().optional(),
        parentRun: z.string().optional(),
        tags: tags.optional(),
        metadata: value.optional(),
      }),
      bytesMax: RECORD_BYTES_MAX,
      refusals: ['RUN_NOT_FOUND', 'RUN_EXISTS'],
      answers: { 201: ['The run.', run] },
    },
    ({ c, body }) =>
      services.answers.once(c, [], async made => {
        const { metadata, tenant, app, agent, ...rest } = body
        const { runs, tenant: own } = c.get('db')
        const runId = rest.runId ?? made
        const options = { ...rest, runId: namespaceOf(own, { tenant, app, agent }, runId) }
        const all = metadata === undefined ? options : { ...options, metadata: await fromLargeJson(metadata) }
        try {
          return shown(await runs.create(withoutUndefined(all)), 201)
        } catch (error) {
          // The same request has created it before, and its answer was lost.
          const isOwn = rest.runId === undefined && isCode(error, 'RUN_EXISTS')
          const found = isOwn ? await runs.get(made as string) : undefined
          if (found === undefined) throw error
          return shown(found, 201)
        }
      }),
  )
  serve(
    app,
    {
      method: 'put',
      path: '/v1/runs/{runId}',
      id: 'ensureRun',
      summary: 'Returns the run, and creates it if it does not exist.',
      body: z.strictObject({
        parentRun: z.string().optional(),
        tags: tags.optional(),
        metadata: value.optional(),
      }),
      bytesMax: RECORD_BYTES_MAX,
      refusals: ['RUN_NOT_FOUND', 'RUN_EXISTS'],
      answers: { 200: ['The run.', run] },
    },
    async ({ c, run: given, body: { metadata, ...rest } }) => {
      const options = metadata === undefined ? rest : { ...rest, metadata: await fromLargeJson(metadata) }
      return shown(await c.get('db').runs.ensure(given, withoutUndefined(options)))
    },
  )
  serve(
    app,
    {
      method: 'put',
      path: '/v1/runs/{runId}/status',
      id: 'updateRunStatus',
      summary: "Changes the run's status. 409 if the transition is not allowed.",
      headers: { 'Idempotency-Key': text.optional() },
      body: z.strictObject({ status: runStatus, error: z.string().max(MIB).optional() }),
      bytesMax: 2 * MIB,
      refusals: ['RUN_NOT_FOUND', 'INVALID_TRANSITION', 'INVALID_OPERATION'],
      answers: { 200: ['The run.', run] },
    },
    ({ c, run, body: { status, error } }) =>
      services.answers.once(c, [], async () => {
        const { runs } = c.get('db')
        if (error !== undefined && status !== 'Failed') {
          throw new AnnalsError('INVALID_ARGUMENT', 'error is allowed only with the status Failed', {
            name: 'error',
          })
        }
        return shown(error === undefined ? await runs.updateStatus(run, status) : await runs.fail(run, error))
      }),
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/runs/{runId}/tags',
      id: 'addRunTags',
      summary: 'Adds tags to the run.',
      body: z.strictObject({ tags }),
      bytesMax: MIB,
      refusals: ['RUN_NOT_FOUND'],
      answers: { 200: ['The run.', run] },
    },
    async ({ c, run, body }) => shown(await c.get('db').runs.addTags(run, body.tags)),
  )
  serve(
    app,
    {
      method: 'put',
      path: '/v1/runs/{runId}/metadata',
      id: 'updateRunMetadata',
      summary: "Replaces the run's metadata.",
      body: value,
      bytesMax: 16 * MIB,
      refusals: ['RUN_NOT_FOUND'],
      answers: { 200: ['The run.', run] },
    },
    async ({ c, run, body }) => shown(await c.get('db').runs.updateMetadata(run, await fromLargeJson(body))),
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/runs/{runId}/archive',
      id: 'archiveRun',
      summary: 'Hides the run from queries. Its data are kept.',
      headers: { 'Idempotency-Key': text.optional() },
      refusals: ['RUN_NOT_FOUND', 'INVALID_TRANSITION'],
      answers: { 200: ['The run.', run] },
    },
    ({ c, run }) => services.answers.once(c, [], async () => shown(await c.get('db').runs.archive(run))),
  )
  serve(
    app,
    {
      method: 'delete',
      path: '/v1/runs/{runId}',
      id: 'deleteRun',
      load: 'heavy',
      summary: 'Deletes the run and all its data permanently. A tombstone remains.',
      role: 'admin',
      query: { purgeLedger: flag.optional(), reason: text.optional() },
      headers: { 'Idempotency-Key': text.optional() },
      refusals: ['RUN_NOT_FOUND', 'INVALID_OPERATION'],
      answers: { 200: ['The tombstone.', tombstone] },
    },
    ({ c, run, query }) =>
      services.answers.once(c, [query], async () =>
        json(await c.get('db').runs.delete(run, withoutUndefined(query))),
      ),
  )
}

function serveQueries(app: OpenAPIHono<ServerEnv>): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs',
      id: 'queryRuns',
      summary: 'Runs, newest first.',
      query: {
        status: runStatus.optional(),
        tag: texts.optional(),
        createdAfter: whole.optional().openapi({ description: 'Milliseconds since 1970, inclusive.' }),
        createdBefore: whole.optional().openapi({ description: 'Milliseconds since 1970, exclusive.' }),
        parentRun: text.optional(),
        includeArchived: flag.optional(),
        limit: limitUpTo(LIMIT_MAX, LIMIT_DEFAULT),
        after: text.optional(),
      },
      refusals: ['RUN_NOT_FOUND'],
      answers: { 200: ['A page of runs; `next` is the `after` of the next page.', pageOf('runs', run)] },
    },
    async ({ c, query: { tag, after, ...query } }) => {
      const { limit } = query
      // One more than the page, to know whether it is the last.
      const asked = withoutUndefined({ ...query, tags: tag, limit: limit + 1 }) as RunQuery
      const found = await runsBehind(c.get('db').runs, asked, after)
      const page = new Page(limit)
      let count = 0
      while (count < found.length && !page.isFull) await page.addValues(found[count++])
      const last = found[count - 1]
      return page.reply(
        'runs',
        count < found.length ? RUN_CURSOR + cursorOf(last.createdAt, last.runId) : undefined,
      )
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}',
      id: 'getRun',
      summary: 'The run.',
      refusals: ['RUN_NOT_FOUND'],
      answers: { 200: ['The run.', run] },
    },
    async ({ c, run }) => {
      const found = await c.get('db').runs.get(run)
      if (found !== undefined) return shown(found)
      throw notFound(runIdOf(run))
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/tombstones',
      id: 'listTombstones',
      summary: 'The tombstones of deleted runs, newest first.',
      query: { limit: limitUpTo(LIMIT_MAX, LIMIT_DEFAULT), after: cursor.optional() },
      answers: { 200: ['A page of tombstones.', pageOf('tombstones', tombstone)] },
    },
    async ({ c, query: { limit, after } }) =>
      pageOfEach(
        'tombstones',
        c.get('db').runs.iterateTombstones(after === undefined ? undefined : markIn(after)),
        { limit, signal: c.req.raw.signal },
        ({ deletedAt, mark }) => cursorOf(deletedAt, mark),
        marked => marked.tombstone,
      ),
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/stats',
      id: 'stats',
      load: 'heavy',
      summary:
        "The token's tenant, the number of runs in each status, and the ledger's counters since the server was started.",
      answers: {
        200: [
          'The counts.',
          z.object({ tenant: z.string(), runs: z.looseObject({}), ledger: z.looseObject({}) }),
        ],
      },
    },
    async ({ c }) => {
      const db = c.get('db')
      return json({ tenant: db.tenant, runs: await db.runs.stats(), ledger: db.stats().ledger })
    },
  )
}

/** The namespace for a new run; only its id if no other part is given. */
function namespaceOf(
  own: string,
  { tenant, app, agent }: Readonly<Record<'tenant' | 'app' | 'agent', string | undefined>>,
  run: string | undefined,
): Scope | undefined {
  if (tenant === undefined && app === undefined && agent === undefined) return run
  return namespace({
    tenant: tenant ?? own,
    app: app ?? DEFAULT_PART,
    agent: agent ?? DEFAULT_PART,
    run: run ?? newOrderedId(Date.now()),
  })
}

function markIn(after: string): { readonly deletedAt: number; readonly mark: string } {
  const [deletedAt, mark] = partsOf(after, ['number', 'string'])
  return { deletedAt, mark }
}

/** Distinguishes a cursor from a run id, which `after` also accepts. */
const RUN_CURSOR = 'cursor:'

/** The runs after a run. If that was deleted meanwhile, from its millisecond on, so that none is missed. */
async function runsBehind(runs: Runs, query: RunQuery, after: string | undefined): Promise<readonly Run[]> {
  if (after?.startsWith(RUN_CURSOR) !== true)
    return runs.query(withoutUndefined({ ...query, after }) as RunQuery)
  const [createdAt, runId] = partsOf(after.slice(RUN_CURSOR.length), ['number', 'string'])
  if ((await runs.get(runId))?.createdAt === createdAt) return runs.query({ ...query, after: runId })
  const createdBefore = Math.min(query.createdBefore ?? Number.POSITIVE_INFINITY, createdAt + 1)
  return runs.query({ ...query, createdBefore })
}

function isCode(error: unknown, code: ErrorCode): boolean {
  return error instanceof AnnalsError && error.code === code
}

function shown(found: Run, status?: number): Promise<Reply> {
  return largeJson(found, 'value', status)
}
