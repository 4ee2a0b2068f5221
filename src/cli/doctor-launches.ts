import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { problem, type Report, warning } from './doctor-report.ts'
import { replayLog } from './launch-log.ts'
import { countText } from './words.ts'

/** The runs of launches in a folder: whether their logs are whole, and whether telemetry waits. */
export async function examineLaunches(runsFolder: string, report: Report): Promise<void> {
  if (!existsSync(runsFolder)) return
  const names = readdirSync(runsFolder, { withFileTypes: true })
    .filter(entry => entry.isDirectory())
    .map(({ name }) => name)
    .sort()
  let sound = 0
  let waiting = 0
  for (const runId of names) {
    if (await isSound(runsFolder, runId, report)) sound++
    const outbox = statSync(join(runsFolder, runId, 'telemetry_outbox.jsonl'), { throwIfNoEntry: false })
    if (outbox !== undefined && outbox.size > 0) waiting++
  }
  if (sound > 0) {
    report.add({
      name: 'launches',
      status: 'ok',
      message: `The logs of ${countText(sound, 'launch', 'launches')} are whole.`,
    })
  }
  if (waiting > 0) {
    const message = `${countText(waiting, 'launch', 'launches')} have telemetry that the service has not taken yet.`
    report.add(warning('telemetry', message, '`annals telemetry flush` sends it.'))
  }
}

async function isSound(runsFolder: string, runId: string, report: Report): Promise<boolean> {
  try {
    return (await replayLog(runsFolder, runId)) !== undefined
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    // Of the file system, or ours; anything else is our mistake.
    if (code === undefined) throw error
    const name = `launch ${runId}`
    report.add(
      code === 'EVENT_CHAIN_BROKEN'
        ? problem(
            name,
            `The log of launch ${runId} was changed: ${message}.`,
            'Restore it from a backup; it will not be resumed as it is.',
          )
        : warning(
            name,
            `The log of launch ${runId} can't be replayed here: ${message}.`,
            'See what the message says.',
          ),
    )
    return false
  }
}
