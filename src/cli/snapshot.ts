import type { Command } from 'commander'
import { AnnalsError, type RunSnapshot } from '../index.ts'
import { type Context, type Read, wholeNumber, withExamples, withJson, withStore } from './command.ts'
import { lookUpRun } from './lookup.ts'
import { safeText } from './safe-text.ts'
import type { Source } from './source.ts'
import { printSteps } from './steps.ts'
import { reading } from './store.ts'
import { printFields } from './table.ts'
import type { Terminal } from './terminal.ts'
import { paintStatus } from './words.ts'

interface Options extends Read {
  readonly at?: number
}

export function addSnapshot(program: Command, context: Context): void {
  const command = program
    .command('snapshot')
    .argument('<run>', 'id of the run')
    .description('show the state of a run, now or as of an event')
    .option('--at <seq>', 'after this record', wholeNumber('--at', 1))
    .action((runId: string, options: Options) => printSnapshot(runId, options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'snapshot nightly-42', for: 'as it is now' },
    { type: 'snapshot nightly-42 --at 17 --json', for: 'as it was after record 17' },
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

/** From the records alone, so that it is of now also where nobody projects. */
export async function snapshotOf(
  source: Source,
  runId: string,
  atSeq: number | undefined,
): Promise<RunSnapshot> {
  const { isInLedger } = await lookUpRun(source, runId)
  if (!isInLedger) {
    const message = `run ${JSON.stringify(runId)} has no records in the ledger, so there is no snapshot of it; \`annals events\` shows its own log`
    throw new AnnalsError('RUN_NOT_FOUND', message, { runId })
  }
  const snapshot = await source.ledger.replaySnapshot(runId, atSeq === undefined ? {} : { atSeq })
  if (atSeq === undefined || snapshot.lastEventSeq === atSeq) return snapshot
  const message = `run ${JSON.stringify(runId)} has ${snapshot.lastEventSeq} records: there is none with the number ${atSeq}`
  throw new AnnalsError('INVALID_ARGUMENT', message, { runId, atSeq })
}

export async function printHeading(terminal: Terminal, snapshot: RunSnapshot): Promise<void> {
  const { runId, status, lastEventSeq, consistency, hash } = snapshot
  const { colors } = terminal
  await printFields(terminal, [
    ['run', colors.bold(safeText(runId))],
    ['status', paintStatus(colors, status)],
    ['records', String(lastEventSeq)],
    ['state', paintStatus(colors, consistency)],
    ['hash', hash],
  ])
}
