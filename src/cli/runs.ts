import type { Command } from 'commander'
import type { Run, RunStatus } from '../index.ts'
import {
  type Context,
  collected,
  type Read,
  wholeNumber,
  withExamples,
  withJson,
  withStore,
  wordOption,
} from './command.ts'
import { readingIndex } from './store.ts'
import { printTable } from './table.ts'
import { paintStatus, timeText } from './words.ts'

const STATUSES: readonly RunStatus[] = ['Active', 'Completed', 'Failed', 'Cancelled', 'Paused', 'Archived']

interface Options extends Read {
  readonly status?: RunStatus
  readonly tag: readonly string[]
  readonly parent?: string
  readonly all?: boolean
  readonly limit: number
}

export function addRuns(program: Command, context: Context): void {
  const command = program
    .command('runs')
    .description('list runs, newest first')
    .addOption(wordOption('--status <status>', 'only those, in any case', STATUSES))
    .option('--tag <tag>', 'only those with this tag; may be given several times', collected, [])
    .option('--parent <run>', 'only those below this run')
    .option('--all', 'archived ones too')
    .option('--limit <n>', 'how many', wholeNumber('--limit', 1), 50)
    .action((options: Options) => listRuns(options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'runs', for: 'the newest fifty' },
    { type: 'runs --status Failed --tag nightly', for: 'what went wrong last night' },
    { type: "runs --json | jq -r '.[].runId'", for: 'ids, for a script' },
  ])
}

async function listRuns(options: Options, { terminal }: Context): Promise<void> {
  const { status, tag, parent, all, limit } = options
  const found = await readingIndex(options, terminal, source =>
    source.runs.query({
      ...(status === undefined ? {} : { status }),
      ...(tag.length === 0 ? {} : { tags: tag }),
      ...(parent === undefined ? {} : { parentRun: parent }),
      ...(all === true ? { includeArchived: true } : {}),
      limit: limit + 1,
    }),
  )
  const runs = found.slice(0, limit)
  if (options.json === true) return terminal.json(runs)
  if (runs.length === 0) {
    terminal.note('no runs')
    return
  }
  const { colors } = terminal
  await printTable<Run>(terminal, runs, [
    { title: 'RUN', text: run => run.runId, fit: 'whole' },
    ...columnOf(runs, 'app'),
    ...columnOf(runs, 'agent'),
    {
      title: 'STATUS',
      text: run => run.status,
      paint: (text, run) => paintStatus(colors, run.status, text),
      fit: 'whole',
    },
    { title: 'CREATED', text: run => timeText(run.createdAt), fit: 'leave out' },
    { title: 'UPDATED', text: run => timeText(run.updatedAt), fit: 'leave out' },
    { title: 'TAGS', text: run => run.tags.join(' ') },
    ...columnOf(runs, 'parentRun', 'PARENT'),
  ])
  if (found.length > limit) terminal.note(`there are more: --limit ${limit * 10} shows them`)
}

/** What few runs have is a column only if one of these does. */
function columnOf(
  runs: readonly Run[],
  name: 'app' | 'agent' | 'parentRun',
  title: string = name.toUpperCase(),
): readonly { readonly title: string; readonly text: (run: Run) => string }[] {
  return runs.some(run => run[name] !== undefined) ? [{ title, text: run => run[name] ?? '' }] : []
}
