import { AnnalsError } from '../core/errors.ts'
import type { FixInput } from './context.ts'
import type { Issue, Severity, WorkItem } from './events.ts'
import { isBlocking, openIssues, runGates } from './gates.ts'
import type { LaunchState } from './launch-state.ts'
import type { Session } from './session.ts'
import { currentItems } from './work-items.ts'
import type { WorkerRuns } from './worker-runs.ts'

/** ND8. */
const ATTEMPTS_MAX = 3

const WORST: readonly Severity[] = ['blocker', 'error', 'warn', 'info']

/** Worst first: severity, gate, path, line, id. */
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

/** Runs the gates; a fix that has opened a blocker that nobody has seen before fails the run. */
export async function validate(
  session: Session,
  workers: WorkerRuns,
  spanId: string,
): Promise<{ readonly ok: boolean; readonly issues: readonly Issue[] }> {
  const { journal } = session
  await finishFixes(session, workers, spanId)
  const known = new Set(journal.state.issues.map(({ issue_id }) => issue_id))
  const hasFixed = fixesOf(session, journal.state).some(({ status }) => status === 'finished')
  const found = await runGates(session, spanId)
  const blocker = found.find(({ issue_id, severity }) => severity === 'blocker' && !known.has(issue_id))
  if (hasFixed && blocker !== undefined) {
    throw failed('FIX_OPENED_BLOCKER', `a fix has opened a blocker: ${blocker.message}`, blocker)
  }
  const issues = worstFirst(openIssues(journal.state.issues))
  return { ok: !issues.some(isBlocking), issues }
}

/** Has the fixer mend the worst issue that keeps the run from going on. */
export async function fix(session: Session, workers: WorkerRuns, spanId: string): Promise<void> {
  const { state } = session.journal
  const issue = worstFirst(openIssues(state.issues)).find(isBlocking)
  if (issue === undefined)
    throw new AnnalsError('ILLEGAL_STATE', 'there is nothing to fix: no open issue is an error')
  const attempts = fixesOf(session, state, issue.issue_id).filter(
    ({ status }) => status === 'finished',
  ).length
  if (attempts >= ATTEMPTS_MAX) {
    throw failed('FIX_ATTEMPTS_EXHAUSTED', `${attempts} fixes did not resolve: ${issue.message}`, issue)
  }
  await runFixer(session, workers, issue, attempts + 1, spanId)
}

/** What a process that died was fixing is fixed before anybody looks whether it still has to be. */
async function finishFixes(session: Session, workers: WorkerRuns, spanId: string): Promise<void> {
  const { state } = session.journal
  for (const { scope_key, status } of fixesOf(session, state)) {
    const issue = openIssues(state.issues).find(({ issue_id }) => issue_id === scope_key)
    if (status !== 'queued' || issue === undefined) continue
    const attempts = fixesOf(session, state, scope_key).filter(item => item.status === 'finished').length
    await runFixer(session, workers, issue, attempts + 1, spanId)
  }
}

async function runFixer(
  session: Session,
  workers: WorkerRuns,
  issue: Issue,
  fixAttempt: number,
  spanId: string,
): Promise<void> {
  const { journal, launch, signal } = session
  if (launch.fixer === undefined) {
    throw new AnnalsError('ILLEGAL_STATE', 'the launch has no fixer: name one of its workers')
  }
  const before = hashes(journal.state)
  const wasInterrupted = fixesOf(session, journal.state, issue.issue_id).at(-1)?.status === 'queued'
  const input: FixInput = { issue, fixAttempt }
  const mode = { parentSpanId: spanId, signal, isFresh: true }
  await workers.run(launch.fixer, { scope: issue.issue_id, input }, mode)
  // What an attempt that was cut off had changed already, the next one can't change again.
  if (!wasInterrupted && hashes(journal.state) === before) {
    throw failed(
      'FIX_CHANGED_NOTHING',
      `the fix of ${JSON.stringify(issue.message)} has changed nothing`,
      issue,
    )
  }
}

function fixesOf({ launch }: Session, state: LaunchState, issueId?: string): readonly WorkItem[] {
  return currentItems(state).filter(
    ({ worker, scope_key }) => worker === launch.fixer && (issueId === undefined || scope_key === issueId),
  )
}

/** Of all artifacts that gates could look at: what the fixer answers, and what was said of it, is not its work. */
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
