import type { Command } from 'commander'
import { countText, VERDICT } from '../core/vocabulary.ts'
import { verifyBundle } from '../index.ts'
import { BUNDLE_ARGUMENT, watched, withBundle } from './bundle-file.ts'
import { type Context, type Json, withExamples, withJson } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { safeText } from './safe-text.ts'
import { statusText } from './status-text.ts'
import { printFields } from './table.ts'

export function addVerifyBundle(program: Command, context: Context): void {
  const command = program
    .command('verify-bundle')
    .argument('<bundle>', BUNDLE_ARGUMENT)
    .description('verify a bundle without a database: hashes, keys, snapshot')
    .action((path: string, options: Json) => verify(path, options, context))
  withJson(command)
  withExamples(command, [
    { type: 'verify-bundle nightly-42.bundle', for: 'exit code 1, and the line, if a byte was changed' },
    { type: 'verify-bundle - < nightly-42.bundle', for: 'from a pipe' },
  ])
}

async function verify(path: string, options: Json, context: Context): Promise<void> {
  const { terminal } = context
  const report = await withBundle(path, file =>
    verifyBundle(watched(terminal, 'verified', file.read(), file.bytes)),
  )
  if (!report.isValid) context.end(EXIT.problem)
  if (options.json === true) return terminal.json(report)
  const { isValid, line, error, runId = '', tenant = '', records = 0, events = 0, snapshot } = report
  const { colors } = terminal
  if (!isValid) {
    await terminal.line(
      `${colors.red(VERDICT.bad)}  ${safeText(path)}, line ${line}: ${safeText(error ?? '')}`,
    )
    return
  }
  await terminal.line(`${colors.green(VERDICT.good)}  ${safeText(path)}`)
  await printFields(terminal, [
    ['run', colors.bold(safeText(runId))],
    ['tenant', safeText(tenant)],
    ['status', snapshot === undefined ? undefined : statusText(colors, snapshot.status)],
    ['ledger', records === 0 ? undefined : countText(records, 'event')],
    ['own log', events === 0 ? undefined : countText(events, 'event')],
    ['snapshot', snapshot?.hash],
    ['sha256', report.sha256],
  ])
}
