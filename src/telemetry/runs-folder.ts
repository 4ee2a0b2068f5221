import type { Disk } from '../disk/disk.ts'
import { type FlushReport, TelemetryClient, type TelemetryClientOptions } from './client.ts'
import { OUTBOX_FILE } from './outbox.ts'
import { TOLD_FILE } from './told.ts'

export interface RunsFolderOptions extends Omit<TelemetryClientOptions, 'disk' | 'runId'> {
  /** Holds `<run_id>/telemetry_outbox.jsonl`. */
  readonly runs: Disk
  /**
   * Takes the lock of a run's folder and gives the folder; undefined if the run is at work. Two processes on one outbox
   * would take each other's lines for their own: the process that works on the run flushes it.
   */
  readonly lock: (runId: string) => Promise<LockedFolder | undefined>
  /** Tells what the log of a run has and the service was not told; undefined if there is nothing. */
  readonly tellRest: (runId: string, disk: Disk) => Promise<FlushReport | undefined>
}

export interface LockedFolder {
  readonly disk: Disk
  release(): void
}

export interface RunFlush extends FlushReport {
  readonly runId: string
}

const NOTHING: FlushReport = { accepted: 0, dead: 0, waiting: 0 }

/**
 * Sends what earlier runs left behind: first what waits in their outboxes, then what their processes had no time to tell. It
 * happens at the start of the next run, and by hand. Runs at work are left out.
 */
export async function flushRunsFolder(options: RunsFolderOptions): Promise<RunFlush[]> {
  const { runs, lock, tellRest, ...client } = options
  const flushed: RunFlush[] = []
  for (const runId of runs.folders()) {
    const files = runs.list(runId)
    const [isWaiting, isIncomplete] = [files.includes(OUTBOX_FILE), files.includes(TOLD_FILE)]
    if (!isWaiting && !isIncomplete) continue
    const locked = await lock(runId)
    if (locked === undefined) continue
    try {
      const { disk } = locked
      const sent = isWaiting ? await flushOutbox({ ...client, disk, runId }) : NOTHING
      const rest = isIncomplete && sent.waiting === 0 ? await tellRest(runId, disk) : undefined
      if (!isWaiting && rest === undefined) continue
      const { accepted, dead, waiting } = rest ?? NOTHING
      const report = {
        accepted: sent.accepted + accepted,
        dead: sent.dead + dead,
        waiting: sent.waiting + waiting,
      }
      flushed.push({ runId, ...report })
      // The service is down or wants a token: asking for every other run would only take time.
      if (report.waiting > 0) break
    } finally {
      locked.release()
    }
  }
  return flushed
}

async function flushOutbox(options: TelemetryClientOptions): Promise<FlushReport> {
  const client = await TelemetryClient.open(options)
  const report = await client.flush()
  await client.close()
  return report
}
