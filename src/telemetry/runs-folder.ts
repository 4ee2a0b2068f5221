import type { Disk } from '../disk/disk.ts'
import { type FlushReport, TelemetryClient, type TelemetryClientOptions } from './client.ts'
import { OUTBOX_FILE } from './outbox.ts'

export interface RunsFolderOptions extends Omit<TelemetryClientOptions, 'disk' | 'runId'> {
  /** Holds `<run_id>/telemetry_outbox.jsonl`. */
  readonly runs: Disk
  /**
   * Takes the lock of a run's folder and gives the folder; undefined if the run is at work. Two processes on one outbox
   * would take each other's lines for their own: the process that works on the run flushes it.
   */
  readonly lock: (runId: string) => LockedFolder | undefined
}

export interface LockedFolder {
  readonly disk: Disk
  release(): void
}

export interface RunFlush extends FlushReport {
  readonly runId: string
}

/** Flushes what earlier runs left behind: at the start of the next one, and by hand. Runs at work are left out. */
export async function flushRunsFolder(options: RunsFolderOptions): Promise<RunFlush[]> {
  const { runs, lock, ...client } = options
  const flushed: RunFlush[] = []
  for (const runId of runs.folders()) {
    if (!runs.list(runId).includes(OUTBOX_FILE)) continue
    const locked = lock(runId)
    if (locked === undefined) continue
    try {
      const opened = await TelemetryClient.open({ ...client, disk: locked.disk, runId })
      const report = await opened.flush()
      await opened.close()
      flushed.push({ runId, ...report })
      // The service is down or wants a token: asking for every other run would only take time.
      if (report.waiting > 0) break
    } finally {
      locked.release()
    }
  }
  return flushed
}
