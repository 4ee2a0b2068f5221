import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import type { GateContext } from './context.ts'
import { contractProblems, VALIDATION_REPORT_ID } from './contracts.ts'
import type { GateDefinition } from './definition.ts'
import type { Issue, TrackedIssue } from './events.ts'
import { gateRunsOf } from './launch-state.ts'
import { llmEvents, type OpenLlm } from './run-llm.ts'
import { outcomeOf, type Session } from './session.ts'
import { withTimeLimit } from './time-limit.ts'
import { failureOf } from './work-items.ts'

const REPORT_NAME = 'validation_report.json'
/** The writer of what no worker writes. */
const ORCHESTRATOR = 'orchestrator'

/** Whether a run may not go on with it. */
export function isBlocking({ severity }: Issue): boolean {
  return severity === 'error' || severity === 'blocker'
}

export function openIssues(issues: readonly TrackedIssue[]): readonly Issue[] {
  return issues
    .filter(({ status }) => status === 'OPEN')
    .map(({ status: _, resolved_at: __, ...issue }) => issue)
}

/** Runs every gate in turn. Issues that are new are opened, those that no gate finds any more are resolved. */
export async function runGates(session: Session, parentSpanId: string): Promise<readonly Issue[]> {
  const found: Issue[] = []
  const results: { name: string; ok: boolean; issues: number }[] = []
  for (const [name, gate] of session.launch.gates) {
    await session.slots.opened(session.signal)
    const issues = await runGate(session, name, gate, parentSpanId)
    found.push(...issues)
    results.push({ name, ok: !issues.some(isBlocking), issues: issues.length })
  }
  await writeReport(session, results, found, parentSpanId)
  return found
}

async function runGate(
  session: Session,
  name: string,
  gate: GateDefinition,
  parentSpanId: string,
): Promise<readonly Issue[]> {
  const { journal, clock, tell, signal } = session
  const spans = { spanId: journal.newHex(8), parentSpanId }
  await journal.append('GATE_RUN_STARTED', { gate: name }, spans)
  const id = `${name}-${gateRunsOf(journal.state, name)}`
  const activity = { name, id, ...spans, startedAt: clock() }
  tell('gateStarted', activity)
  const durationMs = (): number => clock() - activity.startedAt
  const end = new AbortController()
  let calls: OpenLlm | undefined
  let issues: readonly Issue[]
  try {
    const given = await withTimeLimit(`gate ${name}`, signal, gate.timeoutMs, limited => {
      const events = llmEvents(session, end.signal, spans)
      calls = session.llm.open(session, spans, events, AbortSignal.any([limited, end.signal]))
      return gate.run(contextOf(session, limited, calls))
    }).finally(() => {
      end.abort(new AnnalsError('ILLEGAL_STATE', `gate ${name} has ended: it can't ask any more`))
      return calls?.settled()
    })
    issues = issuesOf(name, given)
  } catch (error) {
    tell('gateFinished', { ...activity, ...outcomeOf(failureOf(error)), durationMs: durationMs() })
    throw error
  }
  await record(session, name, issues, spans)
  const ok = !issues.some(isBlocking)
  await journal.append('GATE_RUN_FINISHED', { gate: name, ok, issues: issues.length }, spans)
  const failure = ok
    ? undefined
    : { code: 'GATE_FAILED', message: `${issues.length} issues`, retryable: false }
  tell('gateFinished', { ...activity, ...outcomeOf(failure), durationMs: durationMs() })
  return issues
}

async function record(
  { journal }: Session,
  gate: string,
  issues: readonly Issue[],
  spans: { readonly spanId: string; readonly parentSpanId: string },
): Promise<void> {
  const open = openIssues(journal.state.issues).filter(issue => issue.gate === gate)
  for (const issue of issues) {
    if (open.some(({ issue_id }) => issue_id === issue.issue_id)) continue
    await journal.append('ISSUE_OPENED', { issue }, spans)
  }
  for (const { issue_id } of open) {
    if (issues.some(issue => issue.issue_id === issue_id)) continue
    await journal.append('ISSUE_RESOLVED', { issue_id }, spans)
  }
}

function contextOf(
  { journal, artifacts, folder }: Session,
  signal: AbortSignal,
  calls: OpenLlm,
): GateContext {
  const { run_id: runId, memory } = journal.state
  return {
    runId,
    config: memory.config,
    folder,
    signal,
    artifacts: artifacts.view,
    get llm() {
      return calls.client()
    },
  }
}

/** With ids made of what they say, so that what is found again is the same issue; each once. */
function issuesOf(gate: string, given: unknown): readonly Issue[] {
  if (!Array.isArray(given)) {
    throw new AnnalsError('INVALID_ARGUMENT', `gate ${gate} must answer with a list of issues`, { gate })
  }
  const issues = new Map<string, Issue>()
  for (const found of given as readonly Omit<Issue, 'issue_id' | 'gate'>[]) {
    const content = { ...found, gate }
    const issue: Issue = { ...content, issue_id: `${gate}-${sha256Hex(canonicalJson(content)).slice(0, 16)}` }
    const [problem] = contractProblems('issue', issue)
    if (problem !== undefined) {
      const message = `gate ${gate} gave no issue: ${problem.path} ${problem.message}`
      throw new AnnalsError('INVALID_ARGUMENT', message, { gate, path: problem.path })
    }
    issues.set(issue.issue_id, issue)
  }
  return [...issues.values()]
}

async function writeReport(
  { journal, artifacts }: Session,
  gates: readonly { readonly name: string; readonly ok: boolean; readonly issues: number }[],
  issues: readonly Issue[],
  spanId: string,
): Promise<void> {
  const { run_id } = journal.state
  const report = { schema_version: 1, run_id, ok: gates.every(({ ok }) => ok), gates, issues }
  const text = `${canonicalJson(report)}\n`
  // Found again as it was, it needs no other event.
  if (
    artifacts.has(REPORT_NAME) &&
    artifacts.isIntact(REPORT_NAME) &&
    artifacts.readText(REPORT_NAME) === text
  )
    return
  await artifacts.write(REPORT_NAME, text, VALIDATION_REPORT_ID, ORCHESTRATOR, { spanId })
}
