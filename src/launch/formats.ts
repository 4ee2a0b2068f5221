/**
 * The formats of a launch's files, each defined once (`core/schema.ts` has the
 * notation). The types in `events.ts` and the JSON Schemas in `contracts.ts`
 * follow from these tables.
 */

/** The formats of single values. */
export const VALUES = {
  text: { type: 'string' },
  name: { type: 'string', minLength: 1 },
  flag: { type: 'boolean' },
  object: { type: 'object' },
  number: { type: 'number' },
  amount: { type: 'number', minimum: 0 },
  count: { type: 'integer', minimum: 0 },
  ordinal: { type: 'integer', minimum: 1 },
  'next-generation': { type: 'integer', minimum: 2 },
  version: { const: 1 },
  sha256: { type: 'string', pattern: '^[0-9a-f]{64}$' },
  'sha256-or-empty': { type: 'string', pattern: '^([0-9a-f]{64})?$' },
  'trace-id': { type: 'string', pattern: '^[0-9a-f]{32}$' },
  'span-id': { type: 'string', pattern: '^[0-9a-f]{16}$' },
  uuid: {
    type: 'string',
    pattern: '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$',
  },
  time: {
    type: 'string',
    pattern: '^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}(\\.\\d+)?(Z|[+-]\\d{2}:\\d{2})$',
  },
  'run-id': { type: 'string', pattern: '^(?!\\.{1,2}$)[A-Za-z0-9._-]{1,128}$' },
  'relative-path': { type: 'string', pattern: '^(?!/)(?!(.*/)?\\.\\.(/|$))[^\\\\\\u0000]+$' },
  severity: { enum: ['info', 'warn', 'error', 'blocker'] },
  'item-status': { enum: ['queued', 'running', 'finished', 'failed', 'skipped'] },
  'issue-status': { enum: ['OPEN', 'RESOLVED'] },
  'resume-cause': { enum: ['resume', 'unpause'] },
} as const

/** The formats of objects. */
export const RECORDS = {
  failure: { code: 'name', message: 'text', retryable: 'flag' },
  'artifact-ref': { name: 'name', sha256: 'sha256' },
  'issue-location': { 'path?': 'text', 'line?': 'ordinal', 'column?': 'ordinal' },
  issue: {
    issue_id: 'name',
    gate: 'name',
    severity: 'severity',
    message: 'text',
    'error_code?': 'name',
    'files?': 'text[]',
    'location?': 'issue-location',
    'suggested_fix?': 'text',
  },
  'token-usage': { input_tokens: 'count', output_tokens: 'count', total_tokens: 'count' },
  item: { work_item_id: 'name' },
  'queued-item': {
    '...': 'item',
    worker: 'name',
    /** `-` for work without a scope. */
    scope_key: 'name',
    /** Counted from 1 for each worker and scope, over the whole run. */
    attempt: 'ordinal',
    inputs: 'artifact-ref[]',
  },
  'work-item': {
    '...': 'queued-item',
    status: 'item-status',
    outputs: 'artifact-ref[]',
    queued_at: 'time',
    'started_at?': 'time',
    /** Set when the item is finished, failed or skipped. */
    'finished_at?': 'time',
    'error?': 'failure',
  },
  'tracked-issue': { '...': 'issue', status: 'issue-status', 'resolved_at?': 'time' },
  file: {
    /** The file, relative to the run's folder. */
    path: 'relative-path',
    sha256: 'sha256',
    /** Names the format of the content. */
    schema_id: 'name',
    writer_worker: 'name',
  },
  /** An artifact in the snapshot, with the time and the id of the event that recorded it. */
  artifact: { '...': 'file', ts: 'time', event_id: 'name' },
  'gate-result': {
    name: 'name',
    ok: 'flag',
    finished_at: 'time',
    /** How many issues the gate found. */
    issues: 'count',
  },
  'gate-report': { name: 'name', ok: 'flag', issues: 'count' },
  /** The part of the event log that a snapshot covers. */
  seal: { events: 'ordinal', bytes: 'ordinal', sha256: 'sha256' },
  /** A line of the event log. Its payload is checked by its type (`contracts.ts`). */
  event: {
    event_id: 'uuid',
    run_id: 'run-id',
    /** RFC 3339. Never earlier than the `ts` of the previous event. */
    ts: 'time',
    type: 'name',
    payload: 'object',
    /** The same for all events of a run. */
    trace_id: 'trace-id',
    span_id: 'span-id',
    'parent_span_id?': 'span-id',
    /** The `event_hash` of the previous event. Empty for the first event. */
    prev_hash: 'sha256-or-empty',
    event_hash: 'sha256',
  },
  /** `snapshot.json`, without the fields that the docs pipeline adds. */
  'general-snapshot': {
    schema_version: 'version',
    run_id: 'run-id',
    run_state: 'name',
    /** Counted from 1. A forced restart starts the next generation. */
    generation: 'ordinal',
    paused: 'flag',
    artifacts_index: 'artifact{}',
    /** In the order in which they were queued. */
    work_items: 'work-item[]',
    /** In the order in which they were opened. */
    issues: 'tracked-issue[]',
    gates: 'gate-result[]',
    created_at: 'time',
    /** The `ts` of the last event applied. */
    updated_at: 'time',
    log: 'seal',
  },
  'validation-report': {
    schema_version: 'version',
    run_id: 'run-id',
    ok: 'flag',
    gates: 'gate-report[]',
    issues: 'issue[]',
  },
} as const

/** The payload of each event type that every launch has. */
export const PAYLOADS = {
  RUN_CREATED: { run_id: 'run-id', launch: 'name', launch_version: 'name', run_config: 'object' },
  ARTIFACT_WRITTEN: { name: 'name', '...': 'file' },
  WORK_ITEM_QUEUED: { '...': 'queued-item' },
  WORK_ITEM_STARTED: { '...': 'item' },
  WORK_ITEM_FINISHED: { '...': 'item', outputs: 'artifact-ref[]' },
  WORK_ITEM_FAILED: { '...': 'item', error: 'failure' },
  WORK_ITEM_SKIPPED: { '...': 'item', reason: 'text' },
  GATE_RUN_STARTED: { gate: 'name' },
  GATE_RUN_FINISHED: { gate: 'name', ok: 'flag', issues: 'count' },
  ISSUE_OPENED: { issue: 'issue' },
  ISSUE_RESOLVED: { issue_id: 'name' },
  RUN_STATE_CHANGED: { old_state: 'name', new_state: 'name' },
  RUN_COMPLETED: {},
  RUN_FAILED: { error: 'failure' },
  RUN_CANCELLED: { reason: 'text' },
  RUN_PAUSED: { 'reason?': 'text' },
  RUN_RESUMED: { from_state: 'name', cause: 'resume-cause' },
  RESUME_REWIND: { from_state: 'name', to_state: 'name' },
  RUN_RESTARTED: { generation: 'next-generation', from_state: 'name' },
  LLM_CALL_STARTED: {
    call_id: 'name',
    model: 'name',
    provider_base_url: 'text',
    prompt_hash: 'sha256',
    input_hash: 'sha256',
    tool_schema_hash: 'sha256',
    'temperature?': 'number',
    'max_tokens?': 'count',
  },
  LLM_CALL_FINISHED: {
    call_id: 'name',
    latency_ms: 'amount',
    token_usage: 'token-usage',
    finish_reason: 'text',
    output_hash: 'sha256',
    /** How often the request was sent: 0 for a cached answer. */
    attempts: 'count',
    cached: 'flag',
    'api_cost_usd?': 'amount',
  },
  LLM_CALL_FAILED: {
    call_id: 'name',
    error_class: 'name',
    error_summary: 'text',
    retryable: 'flag',
    latency_ms: 'amount',
    attempts: 'count',
  },
} as const
