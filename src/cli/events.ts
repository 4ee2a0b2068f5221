import type { Command } from 'commander'
import type { Event, RunEventRecord } from '../index.ts'
import { type Context, type Read, wholeNumber, withExamples, withJson, withStore } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { lookUpRun } from './lookup.ts'
import { cutTo, safeJson, safeText } from './safe-text.ts'
import type { Source } from './source.ts'
import { reading } from './store.ts'
import type { Terminal } from './terminal.ts'

interface Options extends Read {
  readonly follow?: boolean
  readonly after?: number
  readonly limit?: number
  readonly own?: boolean
}

export function addEvents(program: Command, context: Context): void {
  const command = program
    .command('events')
    .argument('<run>', 'id of the run')
    .description("print a run's events in order, one a line; with -f, new ones as they arrive")
    .option('-f, --follow', 'go on until Ctrl-C')
    .option('--after <n>', 'only those behind this number', wholeNumber('--after', 0))
    .option('--limit <n>', 'no more than these', wholeNumber('--limit', 1))
    .option('--own', 'of its own log (db.events), not of the ledger')
    .action((runId: string, options: Options) => printEvents(runId, options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'events nightly-42', for: 'all of them' },
    { type: 'events nightly-42 -f --after 120', for: 'what comes from now on' },
    { type: 'events nightly-42 --json | jq -r .eventType', for: 'one JSON object a line' },
  ])
}

async function printEvents(runId: string, options: Options, context: Context): Promise<void> {
  const { terminal } = context
  const signal = options.follow === true ? context.interruption() : new AbortController().signal
  let left = options.limit ?? Number.POSITIVE_INFINITY
  await reading(options, terminal, async source => {
    const { isInLedger } = await lookUpRun(source, runId)
    const isOwn = options.own === true || !isInLedger
    const asked = { ...options, follow: options.follow === true && source.isLive }
    const found = isOwn
      ? ownEvents(source, runId, asked, signal)
      : ledgerRecords(source, runId, asked, signal)
    for await (const event of found) {
      await (options.json === true ? terminal.line(safeJson(event)) : terminal.line(lineOf(terminal, event)))
      if (--left <= 0) return
    }
    if (options.follow !== true || source.isLive) return
    terminal.note(
      'nobody can write to the folder while it is read here, so nothing more will come: follow it through `annals serve`',
    )
  })
  if (signal.aborted) context.end(EXIT.interrupted)
}

async function* ledgerRecords(
  { ledger }: Source,
  runId: string,
  { follow, after }: Options,
  signal: AbortSignal,
): AsyncGenerator<RunEventRecord, void, void> {
  if (follow === true) {
    yield* ledger.subscribe({ runId, afterSeq: after ?? 0, signal })
    return
  }
  yield* ledger.iterateEvents(runId, { afterSeq: after ?? 0 })
}

async function* ownEvents(
  { events }: Source,
  runId: string,
  { follow, after }: Options,
  signal: AbortSignal,
): AsyncGenerator<Event, void, void> {
  // Its numbers begin with 0: behind nothing is not behind 0.
  const from = after === undefined ? 0 : after + 1
  if (follow === true) {
    yield* events.tail(runId, { from, signal })
    return
  }
  yield* events.iterate(runId, { from })
}

function lineOf(terminal: Terminal, event: RunEventRecord | Event): string {
  const { dim, bold } = terminal.colors
  const isRecord = 'runSeq' in event
  const number = String(isRecord ? event.runSeq : event.sequence).padStart(5)
  const time = isRecord ? event.persistedAt : new Date(event.timestamp).toISOString()
  const type = safeText(isRecord ? event.eventType : event.type)
  const step = isRecord && event.stepId !== undefined ? ` ${safeText(stepOf(event))}` : ''
  const payload = event.payload === undefined ? '' : safeJson(event.payload)
  const head = `${number}  ${time}  ${type}${step}`
  const room = terminal.columns === undefined ? Number.POSITIVE_INFINITY : terminal.columns - head.length - 2
  const shown = room < 8 ? '' : cutTo(payload, room)
  return `${number}  ${dim(time)}  ${bold(type)}${step}${shown === '' ? '' : `  ${dim(shown)}`}`
}

function stepOf({ stepId, logicalAttemptId }: RunEventRecord): string {
  return logicalAttemptId === 1 ? (stepId as string) : `${stepId} (try ${logicalAttemptId})`
}
