import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import { contractProblems, VALIDATION_REPORT_ID } from './contracts.ts'
import type { GateDefinition } from './definition.ts'
import type { Issue, TrackedIssue } from './events.ts'
import type { Spans } from './journal.ts'
import { gateRunsOf } from './launch-state.ts'
import { observed, runCode, type Workbench } from './workbench.ts'

const REPORT_NAME = 'validation_report.json'
/** The writer of artifacts that no worker writes. */
const ORCHESTRATOR = 'orchestrator'

/** Whether a run must not continue with this issue. */
export function isBlocking({ severity }: Issue): boolean {
  return severity === 'error' || severity === 'blocker'
}

/** The issues that are still open, without their tracking fields. */
export function openIssues(issues: readonly TrackedIssue[]): readonly Issue[] {
  return issues
    .filter(({ status }) => status === 'OPEN')
    .map(({ status: _, resolved_at: __, ...issue }) => issue)
}

/** Runs all gates, one after the other. Opens new issues and resolves those that are not found any more. */
export async function runGates(bench: Workbench, parentSpanId: string): Promise<readonly Issue[]> {
  const { journal, launch, slots, signal } = bench
  const found: Issue[] = []
  const results: { name: string; ok: boolean; issues: number }[] = []
  for (const [name, gate] of launch.gates) {
    await slots.opened(signal)
    const issues = await runGate(bench, name, gate, { spanId: journal.newHex(8), parentSpanId })
    found.push(...issues)
    results.push({ name, ok: !issues.some(isBlocking), issues: issues.length })
  }
  await writeReport(bench, results, found, parentSpanId)
  return found
}

async function runGate(
  bench: Workbench,
  name: string,
  gate: GateDefinition,
  spans: Required<Spans>,
): Promise<readonly Issue[]> {
  const { journal, artifacts, folder, signal } = bench
  await journal.append('GATE_RUN_STARTED', { gate: name }, spans)
  const { run_id: runId, memory } = journal.state
  const id = `${name}-${gateRunsOf(journal.state, name)}`
  return observed(bench, 'gate', { name, id, ...spans }, async fail => {
    const limits = { spans, signal, timeoutMs: gate.timeoutMs }
    const given = await runCode(bench, `gate ${name}`, limits, ({ signal: limited, models }) =>
      gate.run({
        runId,
        config: memory.config,
        folder,
        signal: limited,
        artifacts: artifacts.view,
        get llm() {
          return models.client()
        },
      }),
    )
    const issues = issuesOf(name, given)
    await recordIssues(bench, name, issues, spans)
    const ok = !issues.some(isBlocking)
    await journal.append('GATE_RUN_FINISHED', { gate: name, ok, issues: issues.length }, spans)
    if (!ok) fail({ code: 'GATE_FAILED', message: `${issues.length} issues`, retryable: false })
    return issues
  })
}

async function recordIssues(
  { journal }: Workbench,
  gate: string,
  issues: readonly Issue[],
  spans: Spans,
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

/** Gives each issue an id made of its content, so that an issue that is found again has the same id. Drops duplicates. */
function issuesOf(gate: string, given: unknown): readonly Issue[] {
  if (!Array.isArray(given)) {
    throw new AnnalsError('INVALID_ARGUMENT', `gate ${gate} must return a list of issues`, { gate })
  }
  const issues = new Map<string, Issue>()
  for (const found of given as readonly Omit<Issue, 'issue_id' | 'gate'>[]) {
    const content = { ...found, gate }
    const issue: Issue = { ...content, issue_id: `${gate}-${sha256Hex(canonicalJson(content)).slice(0, 16)}` }
    const [problem] = contractProblems('issue', issue)
    if (problem !== undefined) {
      const message = `gate ${gate} returned an invalid issue: ${problem.path} ${problem.message}`
      throw new AnnalsError('INVALID_ARGUMENT', message, { gate, path: problem.path })
    }
    issues.set(issue.issue_id, issue)
  }
  return [...issues.values()]
}

async function writeReport(
  { journal, artifacts }: Workbench,
  gates: readonly { readonly name: string; readonly ok: boolean; readonly issues: number }[],
  issues: readonly Issue[],
  spanId: string,
): Promise<void> {
  const { run_id } = journal.state
  const report = { schema_version: 1, run_id, ok: gates.every(({ ok }) => ok), gates, issues }
  const text = `${canonicalJson(report)}\n`
  // An unchanged report needs no other event.
  if (artifacts.isIntact(REPORT_NAME) && artifacts.readText(REPORT_NAME) === text) return
  await artifacts.write(REPORT_NAME, text, VALIDATION_REPORT_ID, ORCHESTRATOR, { spanId })
}
