import { invariant } from '../core/invariant.ts'
import { type JsonSchema, type SchemaProblem, schemaProblems } from './json-schema.ts'
import { SECTION_STATES } from './states.ts'

/**
 * The contracts: what is on disk, as JSON Schemas. They are data of the code,
 * not files beside it, so that the package always has them and nothing must be
 * read to start; `docs/contracts/*.schema.json` is written from them, and a
 * test compares the two.
 */

const DRAFT = 'https://json-schema.org/draft/2020-12/schema'

const idOf = (name: string): string => `urn:annals:launch:${name}:1`
const EVENT_ID = idOf('event')
const PAYLOADS_ID = idOf('event-payloads')
const SNAPSHOT_ID = idOf('snapshot')
const ISSUE_ID = idOf('issue')
export const VALIDATION_REPORT_ID: string = idOf('validation-report')

const TEXT: JsonSchema = { type: 'string' }
const NAME: JsonSchema = { type: 'string', minLength: 1 }
const FLAG: JsonSchema = { type: 'boolean' }
const COUNT: JsonSchema = { type: 'integer', minimum: 0 }
const FROM_ONE: JsonSchema = { type: 'integer', minimum: 1 }
const SHA256: JsonSchema = { type: 'string', pattern: '^[0-9a-f]{64}$' }
const SPAN: JsonSchema = { type: 'string', pattern: '^[0-9a-f]{16}$' }
const TIME: JsonSchema = {
  type: 'string',
  pattern: '^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}(\\.\\d+)?(Z|[+-]\\d{2}:\\d{2})$',
}
const RUN_ID: JsonSchema = { type: 'string', pattern: '^(?!\\.{1,2}$)[A-Za-z0-9._-]{1,128}$' }
const RELATIVE_PATH: JsonSchema = {
  type: 'string',
  pattern: '^(?!/)(?!(.*/)?\\.\\.(/|$))[^\\\\\\u0000]+$',
}
const SECTION_STATE: JsonSchema = { enum: SECTION_STATES }
const SEVERITY: JsonSchema = { enum: ['info', 'warn', 'error', 'blocker'] }

/** An object with these fields and no others; a name that ends with `?` may be absent. */
function record(fields: Readonly<Record<string, JsonSchema>>): JsonSchema {
  const names = Object.keys(fields)
  return {
    type: 'object',
    properties: Object.fromEntries(names.map(name => [name.replace('?', ''), fields[name]])),
    required: names.filter(name => !name.endsWith('?')),
    additionalProperties: false,
  }
}

const listOf = (items: JsonSchema): JsonSchema => ({ type: 'array', items })
const mapOf = (values: JsonSchema): JsonSchema => ({ type: 'object', additionalProperties: values })

const FAILURE = record({ code: NAME, message: TEXT, retryable: FLAG })
const ARTIFACT_REF = record({ name: NAME, sha256: SHA256 })
const ITEM = { work_item_id: NAME }
const ISSUE_FIELDS: Readonly<Record<string, JsonSchema>> = {
  issue_id: NAME,
  gate: NAME,
  severity: SEVERITY,
  message: TEXT,
  'error_code?': NAME,
  'files?': listOf(TEXT),
  'location?': record({ 'path?': TEXT, 'line?': FROM_ONE, 'column?': FROM_ONE }),
  'suggested_fix?': TEXT,
}

const PAYLOADS: Readonly<Record<string, JsonSchema>> = {
  RUN_CREATED: record({
    run_id: RUN_ID,
    launch: NAME,
    launch_version: NAME,
    run_config: { type: 'object' },
  }),
  INPUTS_CLONED: record({ inputs: listOf(record({ name: NAME, ref: TEXT, 'sha256?': SHA256 })) }),
  ARTIFACT_WRITTEN: record({
    name: NAME,
    path: RELATIVE_PATH,
    sha256: SHA256,
    schema_id: NAME,
    writer_worker: NAME,
  }),
  WORK_ITEM_QUEUED: record({
    ...ITEM,
    worker: NAME,
    scope_key: NAME,
    attempt: FROM_ONE,
    inputs: listOf(ARTIFACT_REF),
  }),
  WORK_ITEM_STARTED: record(ITEM),
  WORK_ITEM_FINISHED: record({ ...ITEM, outputs: listOf(ARTIFACT_REF) }),
  WORK_ITEM_FAILED: record({ ...ITEM, error: FAILURE }),
  WORK_ITEM_SKIPPED: record({ ...ITEM, reason: TEXT }),
  GATE_RUN_STARTED: record({ gate: NAME }),
  GATE_RUN_FINISHED: record({ gate: NAME, ok: FLAG, issues: COUNT }),
  ISSUE_OPENED: record({ issue: { $ref: ISSUE_ID } }),
  ISSUE_RESOLVED: record({ issue_id: NAME }),
  RUN_STATE_CHANGED: record({ old_state: NAME, new_state: NAME }),
  SECTION_STATE_CHANGED: record({ section: NAME, old_state: SECTION_STATE, new_state: SECTION_STATE }),
  PR_OPENED: record({ branch: NAME, commit_sha: NAME, 'url?': TEXT }),
  RUN_COMPLETED: record({}),
  RUN_FAILED: record({ error: FAILURE }),
  RUN_CANCELLED: record({ reason: TEXT }),
  RUN_PAUSED: record({ 'reason?': TEXT }),
  RUN_RESUMED: record({ from_state: NAME, cause: { enum: ['resume', 'unpause'] } }),
  RESUME_REWIND: record({ from_state: NAME, to_state: NAME }),
  RUN_RESTARTED: record({ generation: { type: 'integer', minimum: 2 }, from_state: NAME }),
  LLM_CALL_STARTED: record({
    call_id: NAME,
    model: NAME,
    provider_base_url: TEXT,
    prompt_hash: SHA256,
    input_hash: SHA256,
    tool_schema_hash: SHA256,
    'temperature?': { type: 'number' },
    'max_tokens?': COUNT,
  }),
  LLM_CALL_FINISHED: record({
    call_id: NAME,
    latency_ms: { type: 'number', minimum: 0 },
    token_usage: record({ input_tokens: COUNT, output_tokens: COUNT, total_tokens: COUNT }),
    finish_reason: TEXT,
    output_hash: SHA256,
    attempts: COUNT,
    cached: FLAG,
    'api_cost_usd?': { type: 'number', minimum: 0 },
  }),
  LLM_CALL_FAILED: record({
    call_id: NAME,
    error_class: NAME,
    error_summary: TEXT,
    retryable: FLAG,
    latency_ms: { type: 'number', minimum: 0 },
    attempts: COUNT,
  }),
}

const EVENT_FIELDS = record({
  event_id: {
    type: 'string',
    pattern: '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$',
  },
  run_id: RUN_ID,
  ts: TIME,
  type: { enum: Object.keys(PAYLOADS) },
  payload: { type: 'object' },
  trace_id: { type: 'string', pattern: '^[0-9a-f]{32}$' },
  span_id: SPAN,
  'parent_span_id?': SPAN,
  prev_hash: { type: 'string', pattern: '^([0-9a-f]{64})?$' },
  event_hash: SHA256,
})

const WORK_ITEM = record({
  ...ITEM,
  worker: NAME,
  scope_key: NAME,
  attempt: FROM_ONE,
  status: { enum: ['queued', 'running', 'finished', 'failed', 'skipped'] },
  inputs: listOf(ARTIFACT_REF),
  outputs: listOf(ARTIFACT_REF),
  queued_at: TIME,
  'started_at?': TIME,
  'finished_at?': TIME,
  'error?': FAILURE,
})

const ARTIFACT = record({
  path: RELATIVE_PATH,
  sha256: SHA256,
  schema_id: NAME,
  writer_worker: NAME,
  ts: TIME,
  event_id: NAME,
})

const GATE = record({ name: NAME, ok: FLAG, finished_at: TIME, issues: COUNT })

export type ContractName = 'event' | 'event-payloads' | 'snapshot' | 'issue' | 'validation-report'

/** By the name of their file in `docs/contracts`. */
export const CONTRACTS: Readonly<Record<ContractName, JsonSchema>> = {
  event: {
    $schema: DRAFT,
    $id: EVENT_ID,
    title: 'A line of the event log of a launch',
    ...EVENT_FIELDS,
    allOf: Object.keys(PAYLOADS).map(type => ({
      if: { properties: { type: { const: type } } },
      // biome-ignore lint/suspicious/noThenProperty: the keyword's name; nobody awaits a schema.
      then: { properties: { payload: { $ref: `${PAYLOADS_ID}#/$defs/${type}` } } },
    })),
  },
  'event-payloads': {
    $schema: DRAFT,
    $id: PAYLOADS_ID,
    title: 'The payloads of the events of a launch, by type',
    $defs: PAYLOADS,
  },
  snapshot: {
    $schema: DRAFT,
    $id: SNAPSHOT_ID,
    title: 'What the events of a launch come to',
    ...record({
      schema_version: { const: 1 },
      run_id: RUN_ID,
      run_state: NAME,
      generation: FROM_ONE,
      paused: FLAG,
      artifacts_index: mapOf(ARTIFACT),
      work_items: listOf(WORK_ITEM),
      issues: listOf(
        record({ ...ISSUE_FIELDS, status: { enum: ['OPEN', 'RESOLVED'] }, 'resolved_at?': TIME }),
      ),
      gates: listOf(GATE),
      section_states: mapOf(SECTION_STATE),
      created_at: TIME,
      updated_at: TIME,
      log: record({ events: FROM_ONE, bytes: FROM_ONE, sha256: SHA256 }),
    }),
  },
  issue: {
    $schema: DRAFT,
    $id: ISSUE_ID,
    title: 'Something that a gate has found wrong',
    ...record(ISSUE_FIELDS),
  },
  'validation-report': {
    $schema: DRAFT,
    $id: VALIDATION_REPORT_ID,
    title: 'What the gates of a launch have found, all of them run one after the other',
    ...record({
      schema_version: { const: 1 },
      run_id: RUN_ID,
      ok: FLAG,
      gates: listOf(record({ name: NAME, ok: FLAG, issues: COUNT })),
      issues: listOf({ $ref: ISSUE_ID }),
    }),
  },
}

/** What is wrong with a value by a contract; nothing if all is well. */
export function contractProblems(name: ContractName, value: unknown): readonly SchemaProblem[] {
  return schemaProblems(CONTRACTS[name], value, resolve)
}

function resolve(ref: string): JsonSchema {
  const [id, definition] = ref.split('#/$defs/')
  const document = Object.values(CONTRACTS).find(({ $id }) => $id === id)
  const schema = definition === undefined ? document : document?.$defs?.[definition]
  invariant(schema !== undefined, `the contracts hold ${ref}`)
  return schema
}
