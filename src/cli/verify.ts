import type { Command } from 'commander'
import { countText, VERDICT } from '../core/vocabulary.ts'
import { AnnalsError, type ChainReport, type RunVerification } from '../index.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { lookUpRun } from './run-lookup.ts'
import { safeText } from './safe-text.ts'
import type { Source } from './source.ts'
import { reading } from './store-access.ts'
import type { Terminal } from './terminal.ts'

interface Verified {
  readonly runId: string
  readonly isValid: boolean
  /** Absent if the ledger does not know the run. */
  readonly ledger?: RunVerification
  /** The run's own log; absent if it is empty. */
  readonly events?: ChainReport
}

const PAGE = 500

export function addVerify(program: Command, context: Context): void {
  const command = program
    .command('verify')
    .argument('[run]', 'id of the run; without it, all runs in the run index')
    .description('recompute hash chains, keys and snapshots, and report any change')
    .action((runId: string | undefined, options: Read) => verify(runId, options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'verify', for: 'every run' },
    { type: 'verify nightly-42', for: 'one run; exit code 1 if it was changed' },
  ])
}

async function verify(runId: string | undefined, options: Read, context: Context): Promise<void> {
  const { terminal } = context
  const checked = await reading(options, terminal, async source => {
    if (runId !== undefined) {
      const verified = await verifyOne(source, runId)
      if (verified.ledger === undefined && verified.events === undefined) await lookUpRun(source, runId)
      return [verified]
    }
    return verifyAll(source, terminal)
  })
  const changed = checked.filter(({ isValid }) => !isValid)
  if (changed.length > 0) context.end(EXIT.problem)
  if (options.json === true) return terminal.json({ ok: changed.length === 0, runs: checked })
  await printVerified(terminal, checked, runId === undefined)
}

/** Verifies every run in the run index. */
export async function verifyAll(
  source: Pick<Source, 'runs' | 'ledger' | 'events'>,
  terminal: Terminal,
): Promise<readonly Verified[]> {
  const checked: Verified[] = []
  let after: string | undefined
  for (;;) {
    const page = await source.runs.query({
      includeArchived: true,
      limit: PAGE,
      ...(after === undefined ? {} : { after }),
    })
    for (const { runId } of page) {
      terminal.progress(`${countText(checked.length, 'run')} verified · ${safeText(runId)}`)
      checked.push(await verifyOne(source, runId))
    }
    if (page.length < PAGE) break
    after = page[page.length - 1].runId
  }
  terminal.progress('')
  return checked
}

/** Verifies both logs even if they read as empty: a log whose entries were all removed reads like one that never existed. */
async function verifyOne(source: Pick<Source, 'ledger' | 'events'>, runId: string): Promise<Verified> {
  const ledger = await source.ledger.verifyRun(runId).catch(undefinedIfUnknown)
  const chain = await source.events.verifyChain(runId)
  const events = chain.isValid && chain.length === 0 ? undefined : chain
  return {
    runId,
    // `isValid` must be exactly true: a server may answer with something else.
    isValid: [ledger, events].every(report => report === undefined || report.isValid === true),
    ...(ledger === undefined ? {} : { ledger }),
    ...(events === undefined ? {} : { events }),
  }
}

/** Only this code means that the ledger never had the run. */
function undefinedIfUnknown(error: unknown): undefined {
  if (!(error instanceof AnnalsError && error.code === 'RUN_NOT_FOUND')) throw error
}

async function printVerified(
  terminal: Terminal,
  checked: readonly Verified[],
  isAll: boolean,
): Promise<void> {
  const { green, red, bold } = terminal.colors
  for (const { runId, isValid, ledger, events } of checked) {
    if (isValid && isAll) continue
    const id = bold(safeText(runId))
    if (isValid) await terminal.line(`${green(VERDICT.good)}  ${id}: ${countsOf(ledger, events)}`)
    for (const [log, report] of [['ledger', ledger] as const, ['own log', events] as const]) {
      if (report === undefined || report.isValid) continue
      const { firstInvalid, error } = report
      await terminal.line(
        `${red(VERDICT.bad)}  ${id}: ${log}, at event ${firstInvalid}: ${safeText(error ?? '')}`,
      )
    }
  }
  if (!isAll) return
  const changed = checked.filter(({ isValid }) => !isValid).length
  await terminal.line(
    changed === 0
      ? `${green(VERDICT.good)}  ${countText(checked.length, 'run')}`
      : red(`${changed} of ${countText(checked.length, 'run')} changed`),
  )
}

function countsOf(ledger: RunVerification | undefined, events: ChainReport | undefined): string {
  const parts = [
    ...(ledger === undefined ? [] : [`${countText(ledger.events, 'event')} in the ledger`]),
    ...(events === undefined ? [] : [`${countText(events.length, 'event')} in its own log`]),
  ]
  return parts.length === 0 ? 'no events yet' : parts.join(', ')
}
