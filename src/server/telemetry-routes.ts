import { OpenAPIHono, type RouteConfig } from '@hono/zod-openapi'
import type { Annals } from '../annals.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { commitUrl, repoUrl } from '../telemetry/repo-url.ts'
import { type NewRun, RECORD_FIELDS, type RunChange, type RunRecord } from '../telemetry/run-record.ts'
import type { TelemetryStore } from '../telemetry/telemetry-store.ts'
import { admitHeavy, inSlot } from './admission.ts'
import { LARGE_BODY_BYTES, readJsonBytes, textOf } from './body.ts'
import { type Load, roleOf } from './endpoint.ts'
import { checkRole } from './guard.ts'
import { refusal } from './refusal.ts'
import type { ServerContext, ServerEnv } from './server-env.ts'
import { check, checked } from './telemetry-check.ts'
import {
  COMMIT_URL,
  GET_RUN,
  GET_TRAIL,
  HEALTH,
  LIST_RUNS,
  METADATA,
  METRICS,
  PATCH_RUN,
  POST_BATCH,
  POST_COMMIT,
  POST_RUN,
  REPO_URL,
} from './telemetry-documents.ts'
import { parseLargeTelemetry, parseTelemetryJson } from './telemetry-json.ts'
import { type FieldProblem, TelemetryProblem } from './telemetry-problem.ts'
import { selectionOf } from './telemetry-query.ts'
import { COMMIT, NEW_RUN, RUN_CHANGE } from './telemetry-schemas.ts'
import { streamedJson } from './telemetry-stream.ts'
import { VERSION } from './version.ts'

const BODY_BYTES_MAX = 1024 * 1024
const BATCH_MAX = 1000

type Handler = (c: ServerContext, store: TelemetryStore) => Promise<Response> | Response

/** The handler of each route. */
const HANDLERS: readonly (readonly [RouteConfig, Load, Handler])[] = [
  [METADATA, 'heavy', async (c, store) => c.json(await store.metadata())],
  [POST_RUN, 'light', postRun],
  [POST_BATCH, 'light', postBatch],
  [LIST_RUNS, 'heavy', listRuns],
  [GET_RUN, 'light', async (c, store) => c.json(shown(await existing(c, store)))],
  [PATCH_RUN, 'light', patchRun],
  [POST_COMMIT, 'light', postCommit],
  [
    COMMIT_URL,
    'light',
    async (c, store) => {
      const { git_repo, git_commit_hash } = await existing(c, store)
      return c.json({ commit_url: commitUrl(git_repo, git_commit_hash) ?? null })
    },
  ],
  [
    REPO_URL,
    'light',
    async (c, store) => {
      const { git_repo } = await existing(c, store)
      return c.json({ repo_url: repoUrl(git_repo) ?? null })
    },
  ],
  [GET_TRAIL, 'heavy', getTrail],
]

/** The routes of the telemetry service. The server's guard runs before them. */
export function telemetryRoutes({ engine }: Pick<Annals, 'engine'>): OpenAPIHono<ServerEnv> {
  const app = new OpenAPIHono<ServerEnv>()
  const timings = new Timings()
  const health = { status: 'ok', version: VERSION, ...storeOf(engine) }
  const serve = (route: RouteConfig, load: Load, handler: Handler): void => {
    const role = roleOf({ method: route.method, path: route.path })
    app.openAPIRegistry.registerPath({ ...route, 'x-annals-load': load })
    app.on(route.method.toUpperCase(), honoPath(route), async c => {
      const since = performance.now()
      if (role !== undefined) checkRole(c, role)
      if (load === 'heavy') await admitHeavy(c)
      const response = await handler(c, c.get('db').telemetry)
      timings.add(performance.now() - since)
      return response
    })
  }
  serve(HEALTH, 'light', c => c.json(health))
  serve(METRICS, 'heavy', async (c, store) =>
    c.json({ ...(await store.totals()), performance: timings.summary() }),
  )
  for (const [route, load, handler] of HANDLERS) serve(route, load, handler)
  app.onError((error, c) => {
    if (!(error instanceof TelemetryProblem)) return refusal(c, error)
    c.set('failure', { code: 'INVALID_ARGUMENT', text: error.message })
    return c.json({ detail: error.detail }, error.status)
  })
  return app
}

/** Converts `{event_id}` to the router's `:event_id`. */
function honoPath({ path }: RouteConfig): string {
  return path.replaceAll(/\{(\w+)\}/g, ':$1')
}

/** TD7: the kind of store, but never its location. */
function storeOf({ kind, durability }: Annals['engine']): Record<string, string> {
  return { db_path: kind, journal_mode: 'wal', synchronous: durability }
}

async function postRun(c: ServerContext, store: TelemetryStore): Promise<Response> {
  const run = newRun(checked(NEW_RUN, await readBody(c)))
  const { event_id, run_id } = run
  const [insertion] = await store.insert([run])
  if (insertion === 'created') return c.json({ status: 'created', event_id, run_id }, 201)
  return c.json({
    status: 'duplicate',
    event_id,
    message: 'a run with this event_id is stored already',
  })
}

async function readBody(c: ServerContext): Promise<unknown> {
  const bytes = await readJsonBytes(c, BODY_BYTES_MAX)
  return bytes.length > LARGE_BODY_BYTES ? parseLargeTelemetry(bytes) : parseTelemetryJson(textOf(bytes))
}

/** TD1: an invalid run does not affect the others. */
async function postBatch(c: ServerContext, store: TelemetryStore): Promise<Response> {
  const body = await readBody(c)
  if (!Array.isArray(body) || body.length === 0 || body.length > BATCH_MAX) {
    const msg = `must be an array of 1 to ${BATCH_MAX} runs`
    throw new TelemetryProblem(422, [{ loc: ['body'], msg, type: 'value_error' }])
  }
  const errors: { index: number; detail: readonly FieldProblem[] }[] = []
  const runs: NewRun[] = []
  for (const [index, item] of body.entries()) {
    if (isSliceOver()) await nextSlice()
    const result = check(NEW_RUN, item, ['body', index])
    if ('problems' in result) errors.push({ index, detail: result.problems })
    else runs.push(newRun(result.fields as unknown as NewRun))
  }
  const insertions = runs.length === 0 ? [] : await store.insert(runs)
  const inserted = insertions.filter(insertion => insertion === 'created').length
  return c.json({ inserted, duplicates: insertions.length - inserted, errors, total: body.length })
}

function newRun(fields: NewRun): NewRun {
  return { ...fields, status: fields.status ?? 'running' }
}

async function listRuns(c: ServerContext, store: TelemetryStore): Promise<Response> {
  return streamedJson('', shownEach(store.list(selectionOf(new URL(c.req.url).searchParams))), '', work =>
    inSlot(c, work),
  )
}

async function patchRun(c: ServerContext, store: TelemetryStore): Promise<Response> {
  const change = checked<RunChange>(RUN_CHANGE, await readBody(c))
  const fields = Object.keys(change)
  if (fields.length === 0) throw new TelemetryProblem(400, 'nothing to update')
  const { event_id } = stored(c, await store.change(eventIdOf(c), change))
  return c.json({ event_id, updated: true, fields_updated: fields })
}

interface CommitBody {
  readonly commit_hash: string
  readonly commit_source: RunRecord['git_commit_source']
  readonly commit_author?: string
  readonly commit_timestamp?: string
}

/** Replaces all fields of an earlier commit, so that its author and time do not remain. */
async function postCommit(c: ServerContext, store: TelemetryStore): Promise<Response> {
  const commit = checked<CommitBody>(COMMIT, await readBody(c))
  const { commit_hash } = commit
  const change: RunChange = {
    git_commit_hash: commit_hash,
    git_commit_source: commit.commit_source,
    git_commit_author: commit.commit_author,
    git_commit_timestamp: commit.commit_timestamp,
  }
  const { event_id, run_id } = stored(c, await store.change(eventIdOf(c), change))
  return c.json({ status: 'success', event_id, run_id, commit_hash })
}

async function getTrail(c: ServerContext, store: TelemetryStore): Promise<Response> {
  const runId = c.req.param('run_id') ?? ''
  const trail = await store.trail(runId)
  if (trail === undefined) return c.json({ error: 'there is no such run', run_id: runId }, 404)
  return streamedJson(
    `{"run":${JSON.stringify(shown(trail.run))},"children":`,
    shownEach(trail.children),
    '}',
    work => inSlot(c, work),
  )
}

/** TD5: all fields are present; absent ones are null. */
function shown(run: RunRecord): Record<string, unknown> {
  return Object.fromEntries(RECORD_FIELDS.map(field => [field, run[field] ?? null]))
}

async function* shownEach(
  runs: AsyncGenerator<RunRecord, void, void>,
): AsyncGenerator<Record<string, unknown>, void, void> {
  for await (const run of runs) yield shown(run)
}

async function existing(c: ServerContext, store: TelemetryStore): Promise<RunRecord> {
  return stored(c, await store.get(eventIdOf(c)))
}

function stored(c: ServerContext, run: RunRecord | undefined): RunRecord {
  if (run !== undefined) return run
  throw new TelemetryProblem(404, `there is no run ${JSON.stringify(eventIdOf(c))}`)
}

function eventIdOf(c: ServerContext): string {
  return c.req.param('event_id') ?? ''
}

/** The durations of requests since the service was started. */
class Timings {
  readonly #since = Date.now()
  #requests = 0
  #totalMs = 0
  #maxMs = 0

  add(ms: number): void {
    this.#requests++
    this.#totalMs += ms
    this.#maxMs = Math.max(this.#maxMs, ms)
  }

  summary(): Record<string, number> {
    const mean = this.#requests === 0 ? 0 : this.#totalMs / this.#requests
    const rounded = (ms: number): number => Math.round(ms * 1000) / 1000
    return {
      uptime_s: Math.floor((Date.now() - this.#since) / 1000),
      requests: this.#requests,
      mean_ms: rounded(mean),
      max_ms: rounded(this.#maxMs),
    }
  }
}
