import type { Command } from 'commander'
import { timeText } from '../core/vocabulary.ts'
import type { Event, RunEventRecord } from '../index.ts'
import { type Context, type Read, wholeNumber, withExamples, withJson, withStore } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { lookUpRun } from './run-lookup.ts'
import { cutTo, safeJson, safeText } from './safe-text.ts'
import type { Source } from './source.ts'
import { reading } from './store-access.ts'
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
    .description("print a run's events in order, one per line; with -f, new ones as they arrive")
    .option('-f, --follow', 'print new events until Ctrl-C')
    .option('--after <n>', 'only events after number n, without n itself', wholeNumber('--after', 0))
    .option('--limit <n>', 'at most this many events', wholeNumber('--limit', 1))
    .option('--own', "events of the run's own log (db.events), numbered from 0, instead of the ledger's")
    .action((runId: string, options: Options) => printEvents(runId, options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'events nightly-42', for: 'all events' },
    { type: 'events nightly-42 -f --after 120', for: 'event 121 and later, as they arrive' },
    { type: 'events nightly-42 --json | jq -r .eventType', for: 'one JSON object per line' },
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
    const found = isOwn ? ownEvents(source, runId, asked, signal) : ledgerEvents(source, runId, asked, signal)
    for await (const event of found) {
      await (options.json === true ? terminal.line(safeJson(event)) : terminal.line(lineOf(terminal, event)))
      if (--left <= 0) return
    }
    if (options.follow !== true || source.isLive) return
    terminal.note(
      'no new events can arrive: nothing can write to the folder while this command reads it. To follow a run, start `annals serve`',
    )
  })
  if (signal.aborted) context.end(EXIT.interrupted)
}

async function* ledgerEvents(
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
  // These numbers begin with 0, so `--after 0` leaves out one event and no --after leaves out none.
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
  const time = isRecord ? event.persistedAt : timeText(event.timestamp)
  const type = safeText(isRecord ? event.eventType : event.type)
  const step = isRecord && event.stepId !== undefined ? ` ${safeText(stepOf(event))}` : ''
  const payload = event.payload === undefined ? '' : safeJson(event.payload)
  const head = `${number}  ${time}  ${type}${step}`
  const room = terminal.columns === undefined ? Number.POSITIVE_INFINITY : terminal.columns - head.length - 2
  const shown = room < 8 ? '' : cutTo(payload, room)
  return `${number}  ${dim(time)}  ${bold(type)}${step}${shown === '' ? '' : `  ${dim(shown)}`}`
}

/** The step of an event, with its attempt if that is not the first. */
export function stepOf({ stepId, logicalAttemptId }: RunEventRecord): string {
  return logicalAttemptId === 1 ? (stepId as string) : `${stepId} (attempt ${logicalAttemptId})`
}
