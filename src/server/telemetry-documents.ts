import { createRoute, type RouteConfig, z } from '@hono/zod-openapi'
import { TELEMETRY_STATUSES } from '../telemetry/model.ts'
import { RECORD_FIELDS } from '../telemetry/run-record.ts'
import { roleOf } from './endpoint.ts'
import { LIMIT_DEFAULT, LIMIT_MAX, NAME_FILTERS, TIME_FILTERS } from './telemetry-query.ts'
import { COMMIT, NEW_RUN, RUN_CHANGE } from './telemetry-schemas.ts'

/** The telemetry routes in the OpenAPI document. */

const FIELD_PROBLEM = z.object({
  loc: z.array(z.union([z.string(), z.number()])),
  msg: z.string(),
  type: z.string(),
})
const DETAIL = z.object({ detail: z.string() }).openapi('TelemetryDetail')
const DETAILS = z.object({ detail: z.array(FIELD_PROBLEM) }).openapi('TelemetryDetails')
const RUN = z
  .object(Object.fromEntries(RECORD_FIELDS.map(field => [field, z.unknown()])))
  .openapi('TelemetryStoredRun')
const EVENT_ID = z.object({ event_id: z.string().openapi({ format: 'uuid' }) })

type Content = { readonly 'application/json': { readonly schema: z.ZodType } }
const content = (schema: z.ZodType): Content => ({ 'application/json': { schema } })
const answer = (description: string, schema: z.ZodType): RouteConfig['responses'][string] => ({
  description,
  content: content(schema),
})
const body = (schema: z.ZodType): NonNullable<NonNullable<RouteConfig['request']>['body']> => ({
  required: true,
  content: content(schema),
})

const REFUSED = {
  400: answer('The body is not JSON, has nothing to update, or a filter is invalid.', DETAIL),
  401: answer('The token is missing or invalid.', DETAIL),
  403: answer('The role is too low, or Host or Origin is not accepted.', DETAIL),
  413: answer('The body is larger than 1 MiB.', DETAIL),
  415: answer('The body is not application/json.', DETAIL),
  422: answer('Fields are invalid.', DETAILS),
  429: answer('Too many requests.', DETAIL),
  default: answer('Any other error.', DETAIL),
} as const
const MISSING = answer('The run does not exist.', DETAIL)
const READ = {
  400: answer('A header is repeated, or a filter is invalid.', DETAIL),
  401: REFUSED[401],
  403: REFUSED[403],
  429: REFUSED[429],
  default: REFUSED.default,
} as const

const text = z.string().optional()
const QUERY = z.object({
  ...Object.fromEntries(NAME_FILTERS.map(name => [name, text])),
  ...Object.fromEntries(TIME_FILTERS.map(name => [name, text.openapi({ format: 'date-time' })])),
  status: text.openapi({ enum: [...TELEMETRY_STATUSES] }),
  limit: text.openapi({ type: 'integer', minimum: 1, maximum: LIMIT_MAX, default: LIMIT_DEFAULT }),
  offset: text.openapi({ type: 'integer', minimum: 0, default: 0 }),
})

const TAGS = ['telemetry']

function route(operationId: string, config: RouteConfig): RouteConfig {
  const role = roleOf({ method: config.method, path: config.path })
  const security = role === undefined ? [] : [{ token: [role] }]
  return createRoute({ tags: TAGS, operationId, security, ...config })
}

export const HEALTH: RouteConfig = route('health', {
  method: 'get',
  path: '/health',
  summary: 'Whether the service is up. Needs no token.',
  responses: {
    200: answer(
      'The service is up.',
      z.object({
        status: z.literal('ok'),
        version: z.string(),
        db_path: z.enum(['embedded', 'memory', 'postgres']),
        journal_mode: z.literal('wal'),
        synchronous: z.enum(['durable', 'relaxed']),
      }),
    ),
    403: REFUSED[403],
    429: REFUSED[429],
    default: REFUSED.default,
  },
})

const NUMBERS = z.record(z.string(), z.number())

export const METRICS: RouteConfig = route('telemetryMetrics', {
  method: 'get',
  path: '/metrics',
  summary: 'The number of runs, and the performance of the service.',
  responses: {
    200: answer(
      'The counts.',
      z.object({ total_runs: z.number(), agents: NUMBERS, recent_24h: z.number(), performance: NUMBERS }),
    ),
    ...READ,
  },
})

export const METADATA: RouteConfig = route('telemetryMetadata', {
  method: 'get',
  path: '/api/v1/metadata',
  summary: 'All agent names and job types. Cached for 300 s, or until the next write.',
  responses: {
    200: answer(
      'The names.',
      z.object({
        agent_names: z.array(z.string()),
        job_types: z.array(z.string()),
        counts: z.object({ agent_names: z.number(), job_types: z.number() }),
        cache_hit: z.boolean(),
      }),
    ),
    ...READ,
  },
})

export const POST_RUN: RouteConfig = route('postTelemetryRun', {
  method: 'post',
  path: '/api/v1/runs',
  summary: 'Stores a run. Sending the same event_id again changes nothing.',
  request: { body: body(NEW_RUN) },
  responses: {
    200: answer(
      'A run with this event_id exists.',
      z.object({ status: z.literal('duplicate'), event_id: z.string(), message: z.string() }),
    ),
    201: answer(
      'The run is stored.',
      z.object({ status: z.literal('created'), event_id: z.string(), run_id: z.string() }),
    ),
    ...REFUSED,
  },
})

export const POST_BATCH: RouteConfig = route('postTelemetryRuns', {
  method: 'post',
  path: '/api/v1/runs/batch',
  summary: 'Stores up to 1000 runs. Each is checked separately.',
  request: { body: body(z.array(NEW_RUN).min(1).max(1000)) },
  responses: {
    200: answer(
      'The result for each run.',
      z.object({
        inserted: z.number(),
        duplicates: z.number(),
        errors: z.array(z.object({ index: z.number(), detail: z.array(FIELD_PROBLEM) })),
        total: z.number(),
      }),
    ),
    ...REFUSED,
  },
})

export const LIST_RUNS: RouteConfig = route('listTelemetryRuns', {
  method: 'get',
  path: '/api/v1/runs',
  summary: 'Runs, newest created_at first.',
  request: { query: QUERY },
  responses: { 200: answer('The runs.', z.array(RUN)), ...READ, 400: REFUSED[400], 422: REFUSED[422] },
})

const ONE = '/api/v1/runs/{event_id}'

export const GET_RUN: RouteConfig = route('getTelemetryRun', {
  method: 'get',
  path: ONE,
  summary: 'Returns a run.',
  request: { params: EVENT_ID },
  responses: { 200: answer('The run.', RUN), ...READ, 404: MISSING },
})

export const PATCH_RUN: RouteConfig = route('patchTelemetryRun', {
  method: 'patch',
  path: ONE,
  summary: 'Replaces fields of a run.',
  request: { params: EVENT_ID, body: body(RUN_CHANGE) },
  responses: {
    200: answer(
      'The run is changed.',
      z.object({ event_id: z.string(), updated: z.literal(true), fields_updated: z.array(z.string()) }),
    ),
    ...REFUSED,
    404: MISSING,
  },
})

export const POST_COMMIT: RouteConfig = route('associateCommit', {
  method: 'post',
  path: `${ONE}/associate-commit`,
  summary: 'Records the commit that a run produced.',
  request: { params: EVENT_ID, body: body(COMMIT) },
  responses: {
    200: answer(
      'The commit is recorded.',
      z.object({
        status: z.literal('success'),
        event_id: z.string(),
        run_id: z.string(),
        commit_hash: z.string(),
      }),
    ),
    ...REFUSED,
    404: MISSING,
  },
})

export const COMMIT_URL: RouteConfig = route('commitUrl', {
  method: 'get',
  path: `${ONE}/commit-url`,
  summary: 'The web address of the commit of a run.',
  request: { params: EVENT_ID },
  responses: {
    200: answer(
      'The address at GitHub, GitLab or Bitbucket; null for other hosts.',
      z.object({ commit_url: z.string().nullable() }),
    ),
    ...READ,
    404: MISSING,
  },
})

export const REPO_URL: RouteConfig = route('repoUrl', {
  method: 'get',
  path: `${ONE}/repo-url`,
  summary: 'The web address of the repository of a run.',
  request: { params: EVENT_ID },
  responses: {
    200: answer(
      'The address at GitHub, GitLab or Bitbucket; null for other hosts.',
      z.object({ repo_url: z.string().nullable() }),
    ),
    ...READ,
    404: MISSING,
  },
})

export const GET_TRAIL: RouteConfig = route('telemetryTrail', {
  method: 'get',
  path: '/telemetry/{run_id}',
  summary: 'The newest run with this run_id, and all its descendants by start_time.',
  request: { params: z.object({ run_id: z.string() }) },
  responses: {
    200: answer('The run with its descendants.', z.object({ run: RUN, children: z.array(RUN) })),
    ...READ,
    404: answer('The run does not exist.', z.object({ error: z.string(), run_id: z.string() })),
  },
})
