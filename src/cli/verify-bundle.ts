import type { Command } from 'commander'
import { verifyBundle } from '../index.ts'
import { watched, withBundle } from './bundle-file.ts'
import { type Context, type Json, withExamples, withJson } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { safeText } from './safe-text.ts'
import { printFields } from './table.ts'
import { countText, paintStatus } from './words.ts'

export function addVerifyBundle(program: Command, context: Context): void {
  const command = program
    .command('verify-bundle')
    .argument('<bundle>', 'a file that `annals export` wrote, or - for a pipe')
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
  const {
    isValid,
    line,
    error,
    runId = '',
    tenant = '',
    records = 0,
    events = 0,
    snapshot,
    sha256 = '',
  } = report
  const { colors } = terminal
  if (!isValid) {
    await terminal.line(`${colors.red('CHANGED')}  ${safeText(path)}, line ${line}: ${safeText(error ?? '')}`)
    return
  }
  await terminal.line(`${colors.green('untouched')}  ${safeText(path)}`)
  await printFields(terminal, [
    ['run', colors.bold(safeText(runId))],
    ['tenant', safeText(tenant)],
    ['status', snapshot === undefined ? undefined : paintStatus(colors, snapshot.status)],
    ['ledger', records === 0 ? undefined : countText(records, 'record')],
    ['events', events === 0 ? undefined : `${countText(events, 'event')} in its own log`],
    ['snapshot', snapshot?.hash],
    ['sha256', sha256],
  ])
}
