import { existsSync, statfsSync, statSync } from 'node:fs'
import type { Command } from 'commander'
import { countText, durationText, timeText, VERDICT } from '../core/vocabulary.ts'
import { type Annals, AnnalsError, type ErrorCode, open } from '../index.ts'
import { announcedServer } from './announcement.ts'
import { megabytes } from './bundle-file.ts'
import { type Context, type Read, withExamples, withJson, withStoreOf } from './command.ts'
import { examineLaunches } from './doctor-launches.ts'
import { Report } from './doctor-report.ts'
import { EXIT } from './exit-codes.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { safeText } from './safe-text.ts'
import { localSource } from './source.ts'
import { openOnPostgres } from './store-access.ts'
import { verifyAll } from './verify.ts'

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
    { type: 'doctor', for: 'the store in ./.annals; exit code 1 if there is a problem' },
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
const NAME_FOLDER = 'Name the folder of the store with --data.'

/** Opens the store and checks every file in it. Reports why it cannot be opened. */
async function openExamined({ data, tenant }: Options, report: Report): Promise<Annals | undefined> {
  if (!existsSync(data)) {
    report.fail('folder', `There is no folder ${data}.`, NAME_FOLDER)
    return undefined
  }
  if (!statSync(data).isDirectory()) {
    report.fail('folder', `${data} is a file.`, NAME_FOLDER)
    return undefined
  }
  const { bavail, bsize } = statfsSync(data)
  const free = bavail * bsize
  const space = `${megabytes(free)} are free on the disk of the store.`
  if (free >= FREE_BYTES_MIN) report.ok('space', space)
  else report.warn('space', `Only ${space}`, 'Free some space: commits are refused when the disk is full.')
  try {
    const db = await open({ path: data, tenant, readOnly: true, verifyOnOpen: true })
    if (db.stats().storeId === undefined) {
      await db.close()
      report.fail('folder', `There is no store in ${data}.`, NAME_FOLDER)
      return undefined
    }
    report.ok(
      'files',
      'All data and the log of all tenants were read: every checksum and every hash chain is valid. Files kept only as an older fallback were not checked.',
    )
    return db
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    if (error.code === 'LOCKED') reportLock(data, report)
    else reportFailure(error, report)
    return undefined
  }
}

function reportLock(data: string, report: Report): void {
  const url = announcedServer(data, message =>
    report.warn('address', `${message}.`, 'Remove the file unless you know who wrote it.'),
  )
  report.fail(
    'lock',
    `${data} is open in another process, so it cannot be examined now.`,
    url === undefined
      ? 'Stop that process first.'
      : `A server has it open: run \`annals verify --server ${url}\`, or stop the server first.`,
  )
}

/** The finding, the message and the advice for errors of opening a store. */
const FAILURES: Partial<Record<ErrorCode, readonly [name: string, message: string, advice: string]>> = {
  FORMAT_TOO_NEW: [
    'format',
    'A newer version of annals wrote the store',
    'Install that version or a later one.',
  ],
  FORMAT_TOO_OLD: [
    'format',
    'An older version of annals wrote the store',
    'Install the version that wrote it, and export the runs with it.',
  ],
  CORRUPT: [
    'files',
    'Stored data are damaged',
    'Stop writing to the store, keep a copy of the folder, and restore a backup. Annals never repairs damaged data.',
  ],
  EVENT_CHAIN_BROKEN: [
    'chains',
    'A log was changed outside of the database',
    'The other data are valid. Restore that run from a backup or a bundle.',
  ],
}

function reportFailure({ code, message }: AnnalsError, report: Report): void {
  const failure = FAILURES[code] ?? ['files', 'The store cannot be opened', 'Follow the message.']
  const [name, what, advice] = failure
  report.fail(name, `${what}: ${message}.`, advice)
}

async function openServer(options: Options, report: Report): Promise<Annals | undefined> {
  try {
    const db = await openOnPostgres(options, { readOnly: true })
    report.ok('server', 'PostgreSQL answers, and the schema is up to date.')
    return db
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    const advice = 'Check the address, the schema, the password, and that the server is running.'
    report.fail('server', `The store on PostgreSQL cannot be opened: ${error.message}.`, advice)
    return undefined
  }
}

/** Examines the indexes, runs and alerts of each tenant. */
async function examineTenants(
  handles: readonly Annals[],
  report: Report,
  { terminal }: Context,
): Promise<void> {
  const faults: string[] = []
  const broken: string[] = []
  const alerted: string[] = []
  let runs = 0
  // Two tenants may have runs with the same id.
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
  if (faults.length === 0) report.ok('indexes', `Indexes and records of ${whose} match.`)
  else {
    const message = `Indexes and records differ in ${countText(faults.length, 'entry', 'entries')}, the first for ${faults[0]}.`
    report.fail('indexes', message, 'Call `await db.rebuildIndices()` for that tenant in a program.')
  }
  if (broken.length === 0)
    report.ok('runs', `Verified ${countText(runs, 'run')} of ${whose}: all ${VERDICT.good}.`)
  else {
    const ids = safeText(broken.slice(0, 5).join(', '))
    const message = `Changed: ${broken.length} of ${countText(runs, 'run')}: ${ids}.`
    report.fail('runs', message, '`annals verify RUN` shows the event.')
  }
  if (alerted.length === 0) return
  report.warn(
    'alerts',
    `No transition allows ${countText(alerted.length, 'event')}, the last in run ${alerted.at(-1)}.`,
    'They changed no state, but a producer sends invalid events: see `annals show RUN`.',
  )
}

function examineRecovery({ recovery }: Annals, report: Report): void {
  if (recovery === undefined) return
  const { tornTail, damagedManifests, strayBytes } = recovery
  if (tornTail !== undefined) {
    const message =
      'The end of the log is incomplete: a process died or the power failed during a write. No acknowledged commit is lost.'
    report.warn('log', message, 'Nothing to do: the next program that writes to the store removes it.')
  }
  if (damagedManifests.length > 0) {
    const message = `${damagedManifests.join(' and ')} cannot be read. No data are lost: the other manifest and the log have them.`
    report.warn('manifest', message, 'The next checkpoint rewrites it. If it happens again, check the disk.')
  }
  if (strayBytes.length > 0) {
    const message = `${strayBytes[0].file} has non-zero bytes where it should be empty. No commit is affected.`
    report.warn('log', message, 'If it happens again, check the disk.')
  }
}

/** Clocks are often corrected by less than this. */
const AHEAD_MAX_MS = 1_000

function examineClock(db: Annals, report: Report): void {
  const { aheadOfClockMs } = db.stats()
  if (aheadOfClockMs <= AHEAD_MAX_MS) return
  const newest = timeText(Date.now() + aheadOfClockMs)
  const message = `The newest commit, at ${newest}, is ${durationText(aheadOfClockMs)} ahead of the clock.`
  const advice =
    'If the clock is behind, correct it. If it was ahead, commits keep that time until the clock has caught up. Lifetimes and leases that began while it was ahead end by that time: write those keys again.'
  report.warn('clock', message, advice)
}
