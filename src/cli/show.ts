import type { Command } from 'commander'
import { countText, durationText, timeText } from '../core/vocabulary.ts'
import type { LedgerAlert, Run, RunSnapshot } from '../index.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { lookUpRun, type RunParts } from './run-lookup.ts'
import { safeJson, safeText } from './safe-text.ts'
import type { Source } from './source.ts'
import { statusText } from './status-text.ts'
import { printSteps } from './step-table.ts'
import { reading } from './store-access.ts'
import { printFields } from './table.ts'
import type { Terminal } from './terminal.ts'

interface Shown extends RunParts {
  readonly snapshot: RunSnapshot | null
  readonly alerts: readonly LedgerAlert[]
  readonly children: readonly Run[]
  /** Number of events in the run's own log. */
  readonly events: number
}

export function addShow(program: Command, context: Context): void {
  const command = program
    .command('show')
    .argument('<run>', 'id of the run')
    .description("show a run's status, steps and alerts")
    .action((runId: string, options: Read) => showRun(runId, options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'show nightly-42', for: 'status, steps, alerts' },
    { type: 'show nightly-42 --json | jq .snapshot.status', for: 'for a script' },
  ])
}

async function showRun(runId: string, options: Read, { terminal }: Context): Promise<void> {
  const shown = await reading(options, terminal, source => read(source, runId))
  if (options.json === true) {
    const { run, snapshot, alerts, events, children } = shown
    const childIds = children.map(child => child.runId)
    return terminal.json({ runId, run: run ?? null, snapshot, alerts, events, children: childIds })
  }
  await printRun(terminal, runId, shown)
}

async function read(source: Source, runId: string): Promise<Shown> {
  const found = await lookUpRun(source, runId)
  const [snapshot, alerts, children, events] = await Promise.all([
    // Replayed from the events: the stored snapshot may be older if the process that updates it died.
    found.isInLedger ? source.ledger.replaySnapshot(runId) : null,
    found.isInLedger ? source.ledger.alerts({ runId }) : [],
    source.runs.query({ parentRun: runId, includeArchived: true }),
    found.hasEvents ? source.events.count(runId) : 0,
  ])
  return { ...found, snapshot, alerts, children, events }
}

async function printRun(terminal: Terminal, runId: string, shown: Shown): Promise<void> {
  const { run, snapshot, alerts, events, children } = shown
  const { colors } = terminal
  const status = snapshot?.status ?? run?.status
  await printFields(terminal, [
    ['run', colors.bold(safeText(runId))],
    ['status', status === undefined ? 'not in the run index' : statusText(colors, status)],
    ['error', run?.error === undefined ? undefined : colors.red(safeText(run.error))],
    ['plan', snapshot === null ? undefined : safeText(`${snapshot.planId} ${snapshot.planVersion}`)],
    ['owner', snapshot === null ? undefined : ownerOf(snapshot)],
    ['parent', run?.parentRun === undefined ? undefined : safeText(run.parentRun)],
    ['children', children.length === 0 ? undefined : safeText(children.map(child => child.runId).join(', '))],
    ['app', run?.app === undefined ? undefined : safeText(run.app)],
    ['agent', run?.agent === undefined ? undefined : safeText(run.agent)],
    ['tags', run === undefined || run.tags.length === 0 ? undefined : safeText(run.tags.join(' '))],
    ['created', run === undefined ? undefined : timeText(run.createdAt)],
    ['started', snapshot?.startedAt === undefined ? undefined : timeText(Date.parse(snapshot.startedAt))],
    ['ended', snapshot?.completedAt === undefined ? undefined : timeText(Date.parse(snapshot.completedAt))],
    ['took', snapshot?.totalDurationMs === undefined ? undefined : durationText(snapshot.totalDurationMs)],
    ['ledger', snapshot === null ? undefined : ledgerText(snapshot)],
    ['invalid', snapshot === null ? undefined : invalidText(terminal, snapshot)],
    ['own log', events === 0 ? undefined : countText(events, 'event')],
    ['metadata', hasContent(run?.metadata) ? safeText(safeJson(run?.metadata)) : undefined],
  ])
  if (snapshot !== null && snapshot.steps.length > 0) {
    await terminal.line('')
    await printSteps(terminal, snapshot.steps)
  }
  if (alerts.length === 0) return
  await terminal.line('')
  for (const { runSeq, eventType, reason } of alerts) {
    await terminal.line(colors.red(`alert at event ${runSeq}: ${safeText(`${eventType}, but ${reason}`)}`))
  }
}

function ownerOf({ tenantId, projectId, environmentId }: RunSnapshot): string {
  return safeText(`${tenantId} / ${projectId} / ${environmentId}`)
}

function ledgerText({ lastEventSeq, hash }: RunSnapshot): string {
  return `${countText(lastEventSeq, 'event')}, snapshot ${hash.slice(0, 12)}`
}

/** Events that no transition allows; undefined if there are none. */
export function invalidText({ colors }: Terminal, { invalidEvents }: RunSnapshot): string | undefined {
  if (invalidEvents === 0) return undefined
  return colors.red(`${countText(invalidEvents, 'event')} that no transition allows`)
}

function hasContent(metadata: unknown): boolean {
  if (metadata === undefined || metadata === null) return false
  return typeof metadata !== 'object' || Object.keys(metadata).length > 0
}
