import { access, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type FlushReport, TelemetryClient, type TelemetryClientOptions } from './client.ts'
import { unlessMissing } from './durable-file.ts'
import { OUTBOX_FILE } from './outbox.ts'

export interface RunsFolderOptions extends Omit<TelemetryClientOptions, 'folder' | 'runId'> {
  /** Holds `<run_id>/telemetry_outbox.jsonl`. */
  readonly runsFolder: string
  /**
   * Takes the lock of a run's folder and gives what releases it; undefined if the run is at work. Two processes on one
   * outbox would take each other's lines for their own: whoever runs it flushes it.
   */
  readonly lock: (runFolder: string) => Promise<(() => Promise<void>) | undefined>
}

export interface RunFlush extends FlushReport {
  readonly runId: string
}

/** Flushes what earlier runs left behind: at the start of the next one, and by hand. Runs at work are left out. */
export async function flushRunsFolder(options: RunsFolderOptions): Promise<RunFlush[]> {
  const { runsFolder, lock, ...client } = options
  const entries = (await readdir(runsFolder, { withFileTypes: true }).catch(unlessMissing)) ?? []
  const flushed: RunFlush[] = []
  const names = entries.filter(entry => entry.isDirectory()).map(entry => entry.name)
  for (const runId of names.sort()) {
    const folder = join(runsFolder, runId)
    const exists = await access(join(folder, OUTBOX_FILE)).then(() => true, unlessMissing)
    if (exists === undefined) continue
    const release = await lock(folder)
    if (release === undefined) continue
    try {
      const opened = await TelemetryClient.open({ ...client, folder, runId })
      const report = await opened.flush()
      flushed.push({ runId, ...report })
      // The service is down or wants a token: asking for every other run would only take time.
      if (report.waiting > 0) break
    } finally {
      await release()
    }
  }
  return flushed
}
