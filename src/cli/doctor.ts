import { existsSync, statfsSync } from 'node:fs'
import type { Command } from 'commander'
import { type Annals, AnnalsError, open } from '../index.ts'
import { type Context, type Read, withExamples, withJson, withStoreOf } from './command.ts'
import { examineLaunches } from './doctor-launches.ts'
import { type Finding, problem, Report, warning } from './doctor-report.ts'
import { EXIT } from './exit-codes.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { safeText } from './safe-text.ts'
import { localSource } from './source.ts'
import { openOnPostgres, serverOf } from './store.ts'
import { verifyAll } from './verify.ts'
import { countText } from './words.ts'

interface Options extends Read {
  readonly runs?: string
}

export function addDoctor(program: Command, context: Context): void {
  const command = program
    .command('doctor')
    .description('look at a store and say in plain words what is wrong; it never changes anything')
    .action((options: Options) => examine(options, context))
  withJson(withRunsFolder(withStoreOf(command)))
  withExamples(command, [
    { type: 'doctor', for: 'the store in ./.annals; exit code 1 if something is wrong' },
    { type: 'doctor --data /var/lib/annals --json', for: 'for a monitoring script' },
  ])
}

async function examine(options: Options, context: Context): Promise<void> {
  const { terminal } = context
  const report = new Report()
  const db =
    options.postgres === undefined ? await openExamined(options, report) : await openServer(options, report)
  if (db !== undefined) {
    try {
      await examineStore(db, report, context)
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
  const { bavail, bsize } = statfsSync(data)
  const free = bavail * bsize
  report.add(
    free < FREE_BYTES_MIN
      ? warning('space', `Only ${megabytes(free)} are free there.`, 'Make room before commits are refused.')
      : { name: 'space', status: 'ok', message: `${megabytes(free)} are free.` },
  )
  try {
    const db = await open({ path: data, tenant, readOnly: true, verifyOnOpen: true })
    report.add({
      name: 'files',
      status: 'ok',
      message:
        'All data and the log were read, of all tenants: every checksum and every chain of hashes is right. Files that are kept only as an older fallback were not looked at.',
    })
    return db
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    report.add(findingOf(error, data))
    return undefined
  }
}

function findingOf({ code, message }: AnnalsError, data: string): Finding {
  switch (code) {
    case 'LOCKED':
      return problem(
        'lock',
        `${data} is open in another process, so nobody else can look at it now.`,
        `If that is a server, ask it: \`annals verify --server ${serverOf(data)}\`. Or stop that process first.`,
      )
    case 'FORMAT_TOO_NEW':
      return problem(
        'format',
        `The store was written by a newer annals: ${message}.`,
        'Install that version or a later one.',
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
    const db = await openOnPostgres(options)
    report.add({ name: 'server', status: 'ok', message: 'PostgreSQL answers, and the schema is up to date.' })
    return db
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    const advice = 'Check the address, the password and that the server runs.'
    report.add(problem('server', `PostgreSQL can't be reached: ${error.message}.`, advice))
    return undefined
  }
}

async function examineStore(db: Annals, report: Report, { terminal }: Context): Promise<void> {
  examineRecovery(db, report)
  const { problems } = await db.verifyIndices()
  report.add(
    problems.length === 0
      ? {
          name: 'indexes',
          status: 'ok',
          message: `Of tenant ${db.tenant}, every index entry has its record, and every record its entries.`,
        }
      : problem(
          'indexes',
          `${countText(problems.length, 'index entry', 'index entries')} do not fit, the first of ${problems[0].of} ${JSON.stringify(problems[0].id)}.`,
          'In a program, `await db.rebuildIndices()` mends them.',
        ),
  )
  const checked = await verifyAll(localSource(db, false), terminal)
  const broken = checked.filter(({ isValid }) => !isValid)
  report.add(
    broken.length === 0
      ? {
          name: 'runs',
          status: 'ok',
          message: `${countText(checked.length, 'run')} of tenant ${db.tenant}, and nobody touched any of them.`,
        }
      : problem(
          'runs',
          `${countText(broken.length, 'run')} of ${checked.length} were changed: ${safeText(
            broken
              .slice(0, 5)
              .map(({ runId }) => runId)
              .join(', '),
          )}.`,
          '`annals verify RUN` says at which record.',
        ),
  )
  const alerts = await db.ledger.alerts()
  if (alerts.length > 0) {
    report.add(
      warning(
        'alerts',
        `${countText(alerts.length, 'event')} came that no transition allows, the last in run ${JSON.stringify(alerts.at(-1)?.runId)}.`,
        'They changed no state, but a producer sends what it should not: `annals show RUN`.',
      ),
    )
  }
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

function megabytes(bytes: number): string {
  return `${Math.floor(bytes / 1_000_000).toLocaleString('en')} MB`
}
