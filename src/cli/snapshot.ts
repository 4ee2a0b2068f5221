import type { Command } from 'commander'
import { countText } from '../core/vocabulary.ts'
import { AnnalsError, type RunSnapshot } from '../index.ts'
import {
  type Context,
  type Read,
  usageError,
  wholeNumber,
  withExamples,
  withJson,
  withStore,
} from './command.ts'
import { lookUpRun } from './run-lookup.ts'
import { safeText } from './safe-text.ts'
import { invalidText } from './show.ts'
import type { Source } from './source.ts'
import { statusText } from './status-text.ts'
import { printSteps } from './step-table.ts'
import { reading } from './store-access.ts'
import { printFields } from './table.ts'
import type { Terminal } from './terminal.ts'

interface Options extends Read {
  readonly at?: number
}

export function addSnapshot(program: Command, context: Context): void {
  const command = program
    .command('snapshot')
    .argument('<run>', 'id of the run')
    .description("show a run's state, now or as of an event")
    .option('--at <n>', 'as of event n, including it', wholeNumber('--at', 1))
    .action((runId: string, options: Options) => printSnapshot(runId, options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'snapshot nightly-42', for: 'the state now' },
    { type: 'snapshot nightly-42 --at 17 --json', for: 'the state as of event 17' },
  ])
}

async function printSnapshot(runId: string, options: Options, { terminal }: Context): Promise<void> {
  const snapshot = await reading(options, terminal, source => snapshotOf(source, runId, options.at))
  if (options.json === true) return terminal.json(snapshot)
  await printHeading(terminal, snapshot)
  if (snapshot.steps.length === 0) return
  await terminal.line('')
  await printSteps(terminal, snapshot.steps)
}

/** Replays the events, so the snapshot is current even if no process keeps the stored one up to date. */
export async function snapshotOf(
  source: Source,
  runId: string,
  atSeq: number | undefined,
): Promise<RunSnapshot> {
  const { isInLedger } = await lookUpRun(source, runId)
  if (!isInLedger) {
    const message = `run ${JSON.stringify(runId)} has no events in the ledger, so it has no snapshot; \`annals events\` shows its own log`
    throw new AnnalsError('RUN_NOT_FOUND', message, { runId })
  }
  const snapshot = await source.ledger.replaySnapshot(runId, atSeq === undefined ? {} : { atSeq })
  if (atSeq === undefined || snapshot.lastEventSeq === atSeq) return snapshot
  const count = countText(snapshot.lastEventSeq, 'event')
  throw usageError(`run ${JSON.stringify(runId)} has ${count}: there is no event ${atSeq}`, { runId, atSeq })
}

export async function printHeading(terminal: Terminal, snapshot: RunSnapshot): Promise<void> {
  const { runId, status, lastEventSeq, hash } = snapshot
  const { colors } = terminal
  await printFields(terminal, [
    ['run', colors.bold(safeText(runId))],
    ['status', statusText(colors, status)],
    ['events', String(lastEventSeq)],
    ['invalid', invalidText(terminal, snapshot)],
    ['hash', hash],
  ])
}
