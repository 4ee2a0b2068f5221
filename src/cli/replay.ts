import type { Command } from 'commander'
import type { RunSnapshot } from '../index.ts'
import { type Context, type Read, withExamples, withJson, withStore } from './command.ts'
import { EXIT } from './exit-codes.ts'
import { type ReplayedLog, replayLog } from './launch-log.ts'
import { runsFolderOf, withRunsFolder } from './runs-folder.ts'
import { printHeading, snapshotOf } from './snapshot.ts'
import { reading } from './store.ts'

interface Options extends Read {
  readonly runs?: string
}

interface Replayed {
  readonly snapshot: RunSnapshot
  /** As it was projected while the run went on; null if nobody has yet. */
  readonly projected: RunSnapshot | null
  readonly isSame: boolean
}

export function addReplay(program: Command, context: Context): void {
  const command = program
    .command('replay')
    .argument('<run>', 'id of the run')
    .description(
      "rebuild a run's state from its records and compare it with the stored one; of a launch, from its log too",
    )
    .action((runId: string, options: Options) => replay(runId, options, context))
  withJson(withRunsFolder(withStore(command)))
  withExamples(command, [
    { type: 'replay nightly-42', for: 'exit code 1 if it comes to something else' },
    { type: 'replay nightly-42 --json | jq .isSame', for: 'for a script' },
  ])
}

async function replay(runId: string, options: Options, context: Context): Promise<void> {
  const { terminal } = context
  const { snapshot, projected, isSame } = await reading(options, terminal, async source => {
    const replayed = await snapshotOf(source, runId, undefined)
    const stored = await source.ledger.getSnapshot(runId)
    // The stored one may lag behind: then it is compared with what the records came to at that time.
    const compared =
      stored === null || stored.lastEventSeq === replayed.lastEventSeq
        ? replayed
        : await source.ledger.replaySnapshot(runId, { atSeq: stored.lastEventSeq })
    const result: Replayed = {
      snapshot: replayed,
      projected: stored,
      isSame: stored === null || stored.hash === compared.hash,
    }
    return result
  })
  // A log that was tampered with is an error, with its line.
  const log = await replayLog(runsFolderOf(options), runId)
  if (!isSame) context.end(EXIT.problem)
  if (options.json === true) {
    return terminal.json({
      runId,
      isSame,
      snapshot,
      storedHash: projected?.hash ?? null,
      launch: log ?? null,
    })
  }
  await printHeading(terminal, snapshot)
  const { green, red } = terminal.colors
  const said =
    projected === null
      ? 'nothing was stored to compare it with'
      : isSame
        ? green(`the same as the stored snapshot, byte for byte (up to record ${projected.lastEventSeq})`)
        : red(
            `NOT the stored snapshot, whose hash is ${projected.hash}: \`annals verify\` says where it differs`,
          )
  await terminal.line(said)
  if (log !== undefined) await terminal.line(launchText(log))
}

function launchText({ state, events }: ReplayedLog): string {
  if (state === undefined)
    return `its launch: the ${events} events of its log are whole; its states are its own program's`
  return `its launch, from the ${events} events of its log alone: ${state}`
}
