import { existsSync, statfsSync, statSync } from 'node:fs'
import type { Command } from 'commander'
import { type Annals, AnnalsError, open } from '../index.ts'
import { announcedServer } from './announcement.ts'
import { type Context, type Read, withExamples, withJson, withStoreOf } from './command.ts'
import { examineLaunches } from './doctor-launches.ts'
import { type Finding, problem, Report, warning } from './doctor-report.ts'
import { EXIT } from './exit-codes.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { safeText } from './safe-text.ts'
import { localSource } from './source.ts'
import { openOnPostgres } from './store.ts'
import { verifyAll } from './verify.ts'
import { countText, durationText, timeText } from './words.ts'

interface Options extends Read {
  readonly runs?: string
}

export function addDoctor(program: Command, context: Context): void {
  const command = program
    .command('doctor')
    .description('examine a store and report what is wrong; never changes anything')
    .action((options: Options, self: Command) =>
      examine(options, self.getOptionValueSource('tenant') === 'default', context),
    )
  withJson(withRunsFolder(withStoreOf(command)))
  withExamples(command, [
    { type: 'doctor', for: 'the store in ./.annals; exit code 1 if something is wrong' },
    { type: 'doctor --data /var/lib/annals --json', for: 'for a monitoring script' },
  ])
}

async function examine(options: Options, isAnyTenant: boolean, context: Context): Promise<void> {
  const { terminal } = context
  const report = new Report()
  const db =
    options.postgres === undefined ? await openExamined(options, report) : await openServer(options, report)
  if (db !== undefined) {
    try {
      examineRecovery(db, report)
      examineClock(db, report)
      const tenants = isAnyTenant ? await db.tenants() : [options.tenant]
      await examineTenants(
        tenants.map(tenant => db.forTenant(tenant)),
        report,
        context,
      )
    } finally {
      await db.close()
    }
  }
  if (options.postgres === undefined) await examineLaunches(runsFolderOf(options), report)
  if (!report.isOk) context.end(EXIT.problem)
  if (options.json === true) return terminal.json({ ok: report.isOk, findings: report.findings })
  await report.print(terminal)
}

const FREE_BYTES_MIN = 1_000_000_000

/** The store with everything in it read and checked, or what keeps it from being opened. */
async function openExamined({ data, tenant }: Options, report: Report): Promise<Annals | undefined> {
  if (!existsSync(data)) {
    report.add(problem('folder', `There is no folder ${data}.`, 'Name the right one with --data.'))
    return undefined
  }
  if (!statSync(data).isDirectory()) {
    report.add(problem('folder', `${data} is a file.`, 'Name the folder of a store with --data.'))
    return undefined
  }
  const { bavail, bsize } = statfsSync(data)
  const free = bavail * bsize
  report.add(
    free < FREE_BYTES_MIN
      ? warning('space', `Only ${megabytes(free)} are free there.`, 'Make room before commits are refused.')
      : { name: 'space', status: 'ok', message: `${megabytes(free)} are free.` },
  )
  try {
    const db = await open({ path: data, tenant, readOnly: true, verifyOnOpen: true })
    if (db.stats().storeId === undefined) {
      await db.close()
      report.add(problem('folder', `There is no store in ${data}.`, 'Name the right folder with --data.'))
      return undefined
    }
    report.add({
      name: 'files',
      status: 'ok',
      message:
        'All data and the log were read, of all tenants: every checksum and every chain of hashes is right. Files that are kept only as an older fallback were not looked at.',
    })
    return db
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    report.add(error.code === 'LOCKED' ? lockedFinding(data, report) : findingOf(error))
    return undefined
  }
}

function lockedFinding(data: string, report: Report): Finding {
  const url = announcedServer(data, message =>
    report.add(warning('address', `${message}.`, 'Remove it, unless you know who wrote it.')),
  )
  return problem(
    'lock',
    `${data} is open in another process, so it can't be examined now.`,
    url === undefined
      ? 'Stop that process first.'
      : `A server has it: \`annals verify --server ${url}\` asks that one. Or stop it first.`,
  )
}

function findingOf({ code, message }: AnnalsError): Finding {
  switch (code) {
    case 'FORMAT_TOO_NEW':
      return problem(
        'format',
        `The store was written by a newer annals: ${message}.`,
        'Install that version or a later one.',
      )
    case 'FORMAT_TOO_OLD':
      return problem(
        'format',
        `The store was written by an older annals: ${message}.`,
        'Install the version that wrote it, and export the runs with it.',
      )
    case 'CORRUPT':
      return problem(
        'files',
        `Something that was stored is damaged: ${message}.`,
        'Stop writing to it, keep a copy of the folder, and restore a backup. Nothing here will try to repair it.',
      )
    case 'EVENT_CHAIN_BROKEN':
      return problem(
        'chains',
        `Somebody changed a log behind the back of the database: ${message}.`,
        'The rest is sound: restore that run from a backup or a bundle.',
      )
    default:
      return problem('files', `The store can't be opened: ${message}.`, 'See what the message says.')
  }
}

async function openServer(options: Options, report: Report): Promise<Annals | undefined> {
  try {
    const db = await openOnPostgres(options, { readOnly: true })
    report.add({ name: 'server', status: 'ok', message: 'PostgreSQL answers, and the schema is up to date.' })
    return db
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    const advice = 'Check the address, the schema, the password and that the server runs.'
    report.add(problem('server', `The store on PostgreSQL can't be opened: ${error.message}.`, advice))
    return undefined
  }
}

/** All of them: what is wrong with one is not seen by looking at another. */
async function examineTenants(
  handles: readonly Annals[],
  report: Report,
  { terminal }: Context,
): Promise<void> {
  const faults: string[] = []
  const broken: string[] = []
  const alerted: string[] = []
  let runs = 0
  // Ids are the tenant's own: two may have a run of the same name.
  const isAlone = handles.length < 2
  for (const db of handles) {
    const named = (id: string): string => (isAlone ? id : `${id} (tenant ${db.tenant})`)
    const { problems } = await db.verifyIndices()
    faults.push(...problems.map(({ of, id }) => `${of} ${named(JSON.stringify(id))}`))
    const checked = await verifyAll(localSource(db, false), terminal)
    runs += checked.length
    broken.push(...checked.filter(({ isValid }) => !isValid).map(({ runId }) => named(runId)))
    alerted.push(...(await db.ledger.alerts()).map(({ runId }) => named(JSON.stringify(runId))))
  }
  const whose = isAlone ? `tenant ${handles[0]?.tenant ?? 'default'}` : `${handles.length} tenants`
  report.add(
    faults.length === 0
      ? {
          name: 'indexes',
          status: 'ok',
          message: `Of ${whose}, every index entry has its record, and every record its entries.`,
        }
      : problem(
          'indexes',
          `${countText(faults.length, 'index entry', 'index entries')} do not fit, the first of ${faults[0]}.`,
          'In a program, `await db.rebuildIndices()` of that tenant mends them.',
        ),
  )
  report.add(
    broken.length === 0
      ? {
          name: 'runs',
          status: 'ok',
          message: `${countText(runs, 'run')} of ${whose}, and nobody touched any of them.`,
        }
      : problem(
          'runs',
          `${countText(broken.length, 'run')} of ${runs} were changed: ${safeText(broken.slice(0, 5).join(', '))}.`,
          '`annals verify RUN` says at which record.',
        ),
  )
  if (alerted.length === 0) return
  report.add(
    warning(
      'alerts',
      `${countText(alerted.length, 'event')} came that no transition allows, the last in run ${alerted.at(-1)}.`,
      'They changed no state, but a producer sends what it should not: `annals show RUN`.',
    ),
  )
}

function examineRecovery({ recovery }: Annals, report: Report): void {
  if (recovery === undefined) return
  const { tornTail, damagedManifests, strayBytes } = recovery
  if (tornTail !== undefined) {
    const message =
      'The end of the log is not whole: a process died, or the power went, while it wrote. No answered commit is lost.'
    report.add(warning('log', message, 'Nothing to do: the next program that opens the store cuts it off.'))
  }
  if (damagedManifests.length > 0) {
    const message = `${damagedManifests.join(' and ')} can't be read; the other one and the log make up for it.`
    report.add(
      warning(
        'manifest',
        message,
        'The next checkpoint writes it anew. If it happens again, check the disk.',
      ),
    )
  }
  if (strayBytes.length > 0) {
    const message = `There are bytes in ${strayBytes[0].file} that should be zero; no commit was there.`
    report.add(warning('log', message, 'If it happens again, check the disk.'))
  }
}

/** Clocks are set back by less than this all the time. */
const AHEAD_MAX_MS = 1_000

function examineClock(db: Annals, report: Report): void {
  const { aheadOfClockMs } = db.stats()
  if (aheadOfClockMs <= AHEAD_MAX_MS) return
  const newest = timeText(Date.now() + aheadOfClockMs)
  const message = `The newest commit, of ${newest}, lies ahead of the clock by ${durationText(aheadOfClockMs)}.`
  const advice =
    'If the clock is behind, correct it. If it was ahead, commits keep that time until the clock has caught up. Lifetimes and leases follow the clock, but one that began while the clock was ahead ends by that time: put such keys again.'
  report.add(warning('clock', message, advice))
}

function megabytes(bytes: number): string {
  return `${Math.floor(bytes / 1_000_000).toLocaleString('en')} MB`
}
