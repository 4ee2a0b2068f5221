import type { Command } from 'commander'
import { countText } from '../core/vocabulary.ts'
import type { RunSnapshot } from '../index.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { type ReplayedLog, replayLog } from './launch-log.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { printHeading, snapshotOf } from './snapshot.ts'
import type { Source } from './source.ts'
import { reading } from './store-access.ts'

interface Options extends Read {
  readonly runs?: string
}

interface Replayed {
  readonly snapshot: RunSnapshot
  /** The stored snapshot; null if none was stored yet. */
  readonly stored: RunSnapshot | null
  readonly isSame: boolean
}

export function addReplay(program: Command, context: Context): void {
  const command = program
    .command('replay')
    .argument('<run>', 'id of the run')
    .description(
      "rebuild a run's state from its events and compare it with the stored state; for a launch, also from its log file",
    )
    .action((runId: string, options: Options) => replay(runId, options, context))
  withJson(withRunsFolder(withStore(command)))
  withExamples(command, [
    { type: 'replay nightly-42', for: 'exit code 1 if the states differ' },
    { type: 'replay nightly-42 --json | jq .isSame', for: 'for a script' },
  ])
}

async function replay(runId: string, options: Options, context: Context): Promise<void> {
  const { terminal } = context
  const { snapshot, stored, isSame } = await reading(options, terminal, source => compare(source, runId))
  // Throws if the log was changed, and names the line.
  const log = await replayLog(runsFolderOf(options), runId)
  if (!isSame) context.end(EXIT.problem)
  if (options.json === true) {
    return terminal.json({ runId, isSame, snapshot, storedHash: stored?.hash ?? null, launch: log ?? null })
  }
  await printHeading(terminal, snapshot)
  const { green, red } = terminal.colors
  const verdict =
    stored === null
      ? 'no snapshot is stored to compare it with'
      : isSame
        ? green(`the same as the stored snapshot, byte for byte (up to event ${stored.lastEventSeq})`)
        : red(
            `NOT the stored snapshot, whose hash is ${stored.hash}; \`annals verify\` shows where they differ`,
          )
  await terminal.line(verdict)
  if (log !== undefined) await terminal.line(launchText(log))
}

async function compare(source: Source, runId: string): Promise<Replayed> {
  const snapshot = await snapshotOf(source, runId, undefined)
  const stored = await source.ledger.getSnapshot(runId)
  // The stored snapshot may lag behind. It is compared with the state as of its own last event.
  const compared =
    stored === null || stored.lastEventSeq === snapshot.lastEventSeq
      ? snapshot
      : await source.ledger.replaySnapshot(runId, { atSeq: stored.lastEventSeq })
  return { snapshot, stored, isSame: stored === null || stored.hash === compared.hash }
}

function launchText({ state, events }: ReplayedLog): string {
  const log = `launch log: ${countText(events, 'event')}`
  return state === undefined
    ? `${log}, hash chain intact; only the program of the launch knows its states`
    : `${log}, state ${state}`
}
