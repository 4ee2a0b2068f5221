import type { Command } from 'commander'
import { STATUS_WORDS, timeText } from '../core/vocabulary.ts'
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
import { statusColumn } from './status-text.ts'
import { readingIndex } from './store-access.ts'
import { printTable } from './table.ts'

/** The words for a status, and the names that the run index has for them. */
const STATUSES: ReadonlyMap<string, RunStatus> = new Map(
  STATUS_WORDS.flatMap(({ word, run }) => (run === undefined ? [] : [[word, run as RunStatus] as const])),
)

interface Options extends Read {
  readonly status?: string
  readonly tag: readonly string[]
  readonly parent?: string
  readonly all?: boolean
  readonly limit: number
}

export function addRuns(program: Command, context: Context): void {
  const command = program
    .command('runs')
    .description('list runs, newest first')
    .addOption(
      wordOption(
        '--status <status>',
        'only runs with this status, in upper or lower case',
        [...STATUSES.keys()],
        Object.fromEntries([...STATUSES].map(([word, name]) => [name, word])),
      ),
    )
    .option('--tag <tag>', 'only runs with this tag; may be given several times', collected, [])
    .option('--parent <run>', 'only children of this run')
    .option('--all', 'include archived runs')
    .option('--limit <n>', 'at most this many runs', wholeNumber('--limit', 1), 50)
    .action((options: Options) => listRuns(options, context))
  withJson(withStore(command))
  withExamples(command, [
    { type: 'runs', for: 'the newest fifty' },
    { type: 'runs --status failed --tag nightly', for: 'what went wrong last night' },
    { type: "runs --json | jq -r '.[].runId'", for: 'ids, for a script' },
  ])
}

async function listRuns(options: Options, { terminal }: Context): Promise<void> {
  const { tag, parent, all, limit } = options
  const status = options.status === undefined ? undefined : STATUSES.get(options.status)
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
    const isFiltered = status !== undefined || tag.length > 0 || parent !== undefined
    terminal.note(isFiltered ? 'no such runs' : 'no runs yet: `annals demo` makes one to look at')
    return
  }
  await printTable<Run>(terminal, runs, [
    { title: 'RUN', text: run => run.runId, fit: 'whole' },
    ...columnOf(runs, 'app'),
    ...columnOf(runs, 'agent'),
    statusColumn(terminal.colors, run => run.status),
    { title: 'CREATED', text: run => timeText(run.createdAt), fit: 'leave out' },
    { title: 'UPDATED', text: run => timeText(run.updatedAt), fit: 'leave out' },
    { title: 'TAGS', text: run => run.tags.join(' ') },
    ...columnOf(runs, 'parentRun', 'PARENT'),
  ])
  if (found.length > limit) terminal.note(`there are more runs: --limit ${limit * 10} shows up to that many`)
}

/** A column for a field that few runs have; none if no run in the list has it. */
function columnOf(
  runs: readonly Run[],
  name: 'app' | 'agent' | 'parentRun',
  title: string = name.toUpperCase(),
): readonly { readonly title: string; readonly text: (run: Run) => string }[] {
  return runs.some(run => run[name] !== undefined) ? [{ title, text: run => run[name] ?? '' }] : []
}
