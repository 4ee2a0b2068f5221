import { AnnalsError } from '../core/errors.ts'
import type { FixInput } from './context.ts'
import type { Issue, Severity, WorkItem } from './events.ts'
import { isBlocking, openIssues, runGates } from './gates.ts'
import type { LaunchState } from './launch-state.ts'
import { currentItems } from './work-items.ts'
import type { Workbench } from './workbench.ts'
import type { WorkerRuns } from './worker-runs.ts'

/** ND8: an issue that three fixes did not resolve fails the run. */
const FIXES_MAX = 3

const WORST: readonly Severity[] = ['blocker', 'error', 'warn', 'info']

/** The issues by severity, gate, path, line and id. */
export function worstFirst(issues: readonly Issue[]): readonly Issue[] {
  return [...issues].sort(
    (a, b) =>
      WORST.indexOf(a.severity) - WORST.indexOf(b.severity) ||
      byText(a.gate, b.gate) ||
      byText(pathOf(a), pathOf(b)) ||
      (a.location?.line ?? 0) - (b.location?.line ?? 0) ||
      byText(a.issue_id, b.issue_id),
  )
}

function pathOf({ location, files }: Issue): string {
  return location?.path ?? files?.[0] ?? ''
}

function byText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/** Runs the gates. A new blocker after a fix fails the run. */
export async function validate(
  bench: Workbench,
  workers: WorkerRuns,
  spanId: string,
): Promise<{ readonly ok: boolean; readonly issues: readonly Issue[] }> {
  const { journal } = bench
  await finishFixes(bench, workers, spanId)
  const known = new Set(journal.state.issues.map(({ issue_id }) => issue_id))
  const hasFixed = fixesOf(bench).some(({ status }) => status === 'finished')
  const found = await runGates(bench, spanId)
  const blocker = found.find(({ issue_id, severity }) => severity === 'blocker' && !known.has(issue_id))
  if (hasFixed && blocker !== undefined) {
    throw failed('FIX_OPENED_BLOCKER', `a fix opened a blocker: ${blocker.message}`, blocker)
  }
  const issues = worstFirst(openIssues(journal.state.issues))
  return { ok: !issues.some(isBlocking), issues }
}

/** Runs the fixer on the worst issue that blocks the run. */
export async function fix(bench: Workbench, workers: WorkerRuns, spanId: string): Promise<void> {
  const issue = worstFirst(openIssues(bench.journal.state.issues)).find(isBlocking)
  if (issue === undefined) {
    throw new AnnalsError('ILLEGAL_STATE', 'nothing to fix: no open issue is an error or a blocker')
  }
  const fixes = finishedFixes(bench, issue)
  if (fixes >= FIXES_MAX) {
    throw failed('FIX_ATTEMPTS_EXHAUSTED', `${fixes} fixes did not resolve: ${issue.message}`, issue)
  }
  await runFixer(bench, workers, issue, spanId)
}

/** Runs the fixes that a crash interrupted, before the gates look at their results. */
async function finishFixes(bench: Workbench, workers: WorkerRuns, spanId: string): Promise<void> {
  const open = openIssues(bench.journal.state.issues)
  for (const { scope_key, status } of fixesOf(bench)) {
    const issue = open.find(({ issue_id }) => issue_id === scope_key)
    if (status === 'queued' && issue !== undefined) await runFixer(bench, workers, issue, spanId)
  }
}

async function runFixer(bench: Workbench, workers: WorkerRuns, issue: Issue, spanId: string): Promise<void> {
  const { journal, launch, signal } = bench
  if (launch.fixer === undefined) {
    throw new AnnalsError('ILLEGAL_STATE', 'the launch has no fixer: set fixer to one of its workers')
  }
  const before = hashes(journal.state)
  const wasInterrupted = fixesOf(bench, issue).at(-1)?.status === 'queued'
  const input: FixInput = { issue, fixAttempt: finishedFixes(bench, issue) + 1 }
  const mode = { parentSpanId: spanId, signal, isFresh: true }
  await workers.run(launch.fixer, { scope: issue.issue_id, input }, mode)
  // An interrupted attempt may have made the change already, so the next one may change nothing.
  if (!wasInterrupted && hashes(journal.state) === before) {
    throw failed('FIX_CHANGED_NOTHING', `the fix of ${JSON.stringify(issue.message)} changed nothing`, issue)
  }
}

/** The work items of the fixer in this generation, for one issue or for all. */
function fixesOf({ launch, journal }: Workbench, issue?: Issue): readonly WorkItem[] {
  return currentItems(journal.state).filter(
    ({ worker, scope_key }) =>
      worker === launch.fixer && (issue === undefined || scope_key === issue.issue_id),
  )
}

function finishedFixes(bench: Workbench, issue: Issue): number {
  return fixesOf(bench, issue).filter(({ status }) => status === 'finished').length
}

/** The hashes of all artifacts that gates examine. The results that workers return are not among them. */
function hashes({ artifacts }: LaunchState): string {
  return artifacts
    .filter(({ name }) => !name.startsWith('output/'))
    .map(({ name, sha256 }) => `${name} ${sha256}`)
    .sort()
    .join('\n')
}

function failed(code: string, message: string, { issue_id }: Issue): Error {
  return Object.assign(new Error(message), { code, retryable: false, issue_id })
}
