import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { countText } from '../core/vocabulary.ts'
import type { Report } from './doctor-report.ts'
import { replayLog } from './launch-log.ts'

/** Examines the launches in a folder: their logs, and telemetry that was not sent. */
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
    report.ok('launches', `Verified the logs of ${countText(sound, 'launch', 'launches')}.`)
  }
  if (waiting > 0) {
    const message = `The telemetry of ${countText(waiting, 'launch', 'launches')} was not sent yet.`
    report.warn('telemetry', message, '`annals telemetry flush` sends it.')
  }
}

async function isSound(runsFolder: string, runId: string, report: Report): Promise<boolean> {
  try {
    return (await replayLog(runsFolder, runId)) !== undefined
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    // Errors of the file system and of annals have a code. Any other error is a bug.
    if (code === undefined) throw error
    const name = `launch ${runId}`
    if (code === 'EVENT_CHAIN_BROKEN') {
      const advice = 'Restore it from a backup. A changed log cannot be resumed.'
      report.fail(name, `The log of launch ${runId} was changed: ${message}.`, advice)
    } else {
      report.warn(
        name,
        `The log of launch ${runId} cannot be replayed here: ${message}.`,
        'Follow the message.',
      )
    }
    return false
  }
}
