import type { Command } from 'commander'
import type { LedgerAlert, Run, RunSnapshot } from '../index.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { lookUpRun, type RunParts } from './lookup.ts'
import { safeJson, safeText } from './safe-text.ts'
import type { Source } from './source.ts'
import { printSteps } from './steps.ts'
import { reading } from './store.ts'
import { printFields } from './table.ts'
import type { Terminal } from './terminal.ts'
import { countText, durationText, paintStatus, timeText } from './words.ts'

interface Shown extends RunParts {
  readonly snapshot: RunSnapshot | null
  readonly alerts: readonly LedgerAlert[]
  readonly children: readonly Run[]
  /** In its own log. */
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
  const shown = await reading(options, terminal, source => lookAt(source, runId))
  if (options.json === true) {
    const { run, snapshot, alerts, events, children } = shown
    const childIds = children.map(child => child.runId)
    return terminal.json({ runId, run: run ?? null, snapshot, alerts, events, children: childIds })
  }
  await printRun(terminal, runId, shown)
}

async function lookAt(source: Source, runId: string): Promise<Shown> {
  const found = await lookUpRun(source, runId)
  const [snapshot, alerts, children, events] = await Promise.all([
    // From the records: what was projected may be of a moment before its process ended, and nobody goes on with it.
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
    ['status', status === undefined ? 'not in the index of runs' : paintStatus(colors, status)],
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
    ['ledger', snapshot === null ? undefined : ledgerText(terminal, snapshot)],
    ['events', events === 0 ? undefined : `${countText(events, 'event')} in its own log`],
    ['metadata', hasContent(run?.metadata) ? safeText(safeJson(run?.metadata)) : undefined],
  ])
  if (snapshot !== null && snapshot.steps.length > 0) {
    await terminal.line('')
    await printSteps(terminal, snapshot.steps)
  }
  if (alerts.length === 0) return
  await terminal.line('')
  for (const { runSeq, eventType, reason } of alerts) {
    await terminal.line(colors.red(`alert at record ${runSeq}: ${safeText(`${eventType}, but ${reason}`)}`))
  }
}

function ownerOf({ tenantId, projectId, environmentId }: RunSnapshot): string {
  return safeText(`${tenantId} / ${projectId} / ${environmentId}`)
}

function ledgerText({ colors }: Terminal, { lastEventSeq, consistency, hash }: RunSnapshot): string {
  const state = consistency === 'CONSISTENT' ? '' : `, ${paintStatus(colors, consistency)}`
  return `${countText(lastEventSeq, 'record')}${state}, snapshot ${hash.slice(0, 12)}`
}

function hasContent(metadata: unknown): boolean {
  if (metadata === undefined || metadata === null) return false
  return typeof metadata !== 'object' || Object.keys(metadata).length > 0
}
