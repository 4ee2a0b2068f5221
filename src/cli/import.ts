import type { Command } from 'commander'
import { countText } from '../core/vocabulary.ts'
import { type Annals, AnnalsError, type ImportReport } from '../index.ts'
import { BUNDLE_ARGUMENT, type BundleFile, watched, withBundle } from './bundle-file.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { safeText } from './safe-text.ts'
import { openStore } from './store-access.ts'
import type { Terminal } from './terminal.ts'

export function addImport(program: Command, context: Context): void {
  const command = program
    .command('import')
    .argument('<bundle>', BUNDLE_ARGUMENT)
    .description("import a bundle's run with every event, hash and time")
    .action((path: string, options: Read, self: Command) =>
      importBundle(path, options, self.getOptionValueSource('tenant') === 'default', context),
    )
  withJson(withStore(command))
  withExamples(command, [
    { type: 'import nightly-42.bundle', for: 'refused unless it verifies; importing again changes nothing' },
    { type: 'import - --data ./copy < nightly-42.bundle', for: 'from stdin, into another store' },
  ])
}

async function importBundle(
  path: string,
  options: Read,
  isAnyTenant: boolean,
  { terminal }: Context,
): Promise<void> {
  const report = await withBundle(path, async file => {
    const db = await openStore(options)
    try {
      return await importFile(db, file, isAnyTenant, terminal)
    } finally {
      await db.close()
    }
  })
  if (options.json === true) return terminal.json(report)
  const { runId, records, events } = report
  const { green, bold } = terminal.colors
  const id = bold(safeText(runId))
  await terminal.line(
    records === 0 && events === 0
      ? `${id} is already in the store: nothing to do`
      : `${green('imported')}  ${id}: ${countText(records, 'event')} in the ledger, ${countText(events, 'event')} in its own log`,
  )
}

/** Without --tenant, the run is imported for the tenant that the bundle names. */
async function importFile(
  db: Annals,
  file: BundleFile,
  isAnyTenant: boolean,
  terminal: Terminal,
): Promise<ImportReport> {
  const bundle = (): AsyncIterable<Uint8Array> => watched(terminal, 'read', file.read(), file.bytes)
  try {
    return await db.importRun(bundle)
  } catch (error) {
    const tenant: unknown = error instanceof AnnalsError ? error.details['tenant'] : undefined
    if (!isAnyTenant || typeof tenant !== 'string') throw error
    return db.forTenant(tenant).importRun(bundle)
  }
}
