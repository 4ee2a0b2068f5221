import { canonicalJson } from '../../src/core/canonical-json.ts'
import { eventHash } from '../../src/launch/chain.ts'
import { DOCS_STATES } from '../../src/launch/docs/pipeline.ts'
import type { LaunchEvent, LaunchEventType, LaunchSnapshot } from '../../src/launch/events.ts'
import { Journal } from '../../src/launch/journal.ts'
import type { EventLog } from '../../src/launch/log.ts'
import type { StateModel } from '../../src/launch/states.ts'

/** A log in memory, and a journal that writes it. */

class MemoryLog implements EventLog {
  text = ''
  async read(): Promise<Buffer> {
    return Buffer.from(this.text)
  }
  async cut(bytes: number): Promise<void> {
    this.text = this.text.slice(0, bytes)
  }
  async append(line: string): Promise<void> {
    this.text += line
  }
  async close(): Promise<void> {}
}

export interface WrittenLog {
  readonly journal: Journal
  readonly log: MemoryLog
  /** In the order in which they were written. */
  readonly snapshots: LaunchSnapshot[]
  readonly events: LaunchEvent[]
}

export function newJournal(
  options: { runId?: string; model?: StateModel; clock?: () => number } = {},
): WrittenLog {
  const log = new MemoryLog()
  const snapshots: LaunchSnapshot[] = []
  const events: LaunchEvent[] = []
  let now = Date.parse('2026-01-28T00:00:00Z')
  const journal = new Journal({
    runId: options.runId ?? 'run-1',
    model: options.model ?? DOCS_STATES,
    log,
    writeSnapshot: async snapshot => void snapshots.push(snapshot),
    onEvent: event => events.push(event),
    clock: options.clock ?? (() => (now += 1000)),
  })
  return { journal, log, snapshots, events }
}

const HASH = 'a'.repeat(64)
const ITEM = 'run-1:draft:1:intro'

/** Writes a log with an event of every type. */
export async function writeFullLog(): Promise<WrittenLog> {
  const written = newJournal()
  const { journal } = written
  const item = { work_item_id: ITEM }
  const to = async (...states: string[]): Promise<void> => {
    for (const new_state of states) {
      await journal.append('RUN_STATE_CHANGED', { old_state: journal.state.run_state, new_state })
    }
  }
  await journal.append('RUN_CREATED', {
    run_id: 'run-1',
    launch: 'docs',
    launch_version: '1',
    run_config: { topic: 'bäume' },
  })
  await journal.append('INPUTS_CLONED', { inputs: [{ name: 'repo', ref: 'main' }] })
  await to('CLONED_INPUTS', 'INGESTED', 'FACTS_READY', 'PLAN_READY', 'DRAFTING')
  await journal.append('WORK_ITEM_QUEUED', {
    ...item,
    worker: 'draft',
    scope_key: 'intro',
    attempt: 1,
    inputs: [],
  })
  const spans = { spanId: journal.newHex(8), parentSpanId: journal.rootSpanId }
  await journal.append('WORK_ITEM_STARTED', item, spans)
  await journal.append(
    'LLM_CALL_STARTED',
    {
      call_id: 'c1',
      model: 'm',
      provider_base_url: 'http://localhost',
      prompt_hash: HASH,
      input_hash: HASH,
      tool_schema_hash: HASH,
    },
    spans,
  )
  await journal.append('LLM_CALL_FAILED', {
    call_id: 'c1',
    error_class: 'Timeout',
    error_summary: 'too slow',
    retryable: true,
    latency_ms: 3,
    attempts: 5,
  })
  await journal.append('LLM_CALL_FINISHED', {
    call_id: 'c2',
    latency_ms: 3,
    token_usage: { input_tokens: 1, output_tokens: 2, total_tokens: 3 },
    finish_reason: 'stop',
    output_hash: HASH,
    attempts: 1,
    cached: false,
  })
  await journal.append('WORK_ITEM_FAILED', {
    ...item,
    error: { code: 'TIMEOUT', message: 'x', retryable: true },
  })
  const second = { work_item_id: 'run-1:draft:2:intro' }
  const third = { work_item_id: 'run-1:draft:1:end' }
  await journal.append('WORK_ITEM_QUEUED', {
    ...second,
    worker: 'draft',
    scope_key: 'intro',
    attempt: 2,
    inputs: [],
  })
  await journal.append('WORK_ITEM_QUEUED', {
    ...third,
    worker: 'draft',
    scope_key: 'end',
    attempt: 1,
    inputs: [],
  })
  await journal.append('WORK_ITEM_STARTED', second)
  await journal.append('ARTIFACT_WRITTEN', {
    name: 'drafts/intro',
    path: 'artifacts/drafts/intro',
    sha256: HASH,
    schema_id: 'text',
    writer_worker: 'draft',
  })
  await journal.append('WORK_ITEM_FINISHED', { ...second, outputs: [{ name: 'drafts/intro', sha256: HASH }] })
  await journal.append('WORK_ITEM_SKIPPED', { ...third, reason: 'nothing to say' })
  await journal.append('SECTION_STATE_CHANGED', {
    section: 'intro',
    old_state: 'NOT_STARTED',
    new_state: 'DRAFTED',
  })
  await journal.append('RUN_PAUSED', {})
  await journal.append('RUN_RESUMED', { from_state: 'DRAFTING', cause: 'unpause' })
  await journal.append('RUN_RESUMED', { from_state: 'DRAFTING', cause: 'resume' })
  await journal.append('RESUME_REWIND', { from_state: 'DRAFTING', to_state: 'PLAN_READY' })
  await to('DRAFTING', 'DRAFT_READY', 'LINKING', 'VALIDATING')
  await journal.append('GATE_RUN_STARTED', { gate: 'links' })
  await journal.append('ISSUE_OPENED', {
    issue: { issue_id: 'i1', gate: 'links', severity: 'error', message: 'broken link' },
  })
  await journal.append('GATE_RUN_FINISHED', { gate: 'links', ok: false, issues: 1 })
  await to('FIXING', 'VALIDATING')
  await journal.append('ISSUE_RESOLVED', { issue_id: 'i1' })
  await journal.append('GATE_RUN_FINISHED', { gate: 'links', ok: true, issues: 0 })
  await to('READY_FOR_PR')
  await journal.append('PR_OPENED', { branch: 'docs', commit_sha: 'abc' })
  await to('PR_OPENED', 'DONE')
  await journal.append('RUN_COMPLETED', {})
  return written
}

/** A log with one event changed and all later hashes recomputed, as its writer could have written it. */
export function rewritten(
  text: string,
  line: number,
  change: (event: Record<string, unknown>) => Record<string, unknown>,
): string {
  let prev_hash = ''
  return text
    .split('\n')
    .filter(Boolean)
    .map((json, index) => {
      const before = JSON.parse(json) as Record<string, unknown>
      const event = { ...(index + 1 === line ? change(before) : before), prev_hash } as unknown as LaunchEvent
      prev_hash = eventHash(event)
      return `${canonicalJson({ ...event, event_hash: prev_hash })}\n`
    })
    .join('')
}

export const TYPES_SEEN_IN_RESTARTS: readonly LaunchEventType[] = [
  'RUN_RESTARTED',
  'RUN_FAILED',
  'RUN_CANCELLED',
]
