import { TelemetryClient, type TelemetryClientOptions, WARNINGS } from './client.ts'
import { LaunchTelemetry, type LaunchTelemetryOptions, type RecordSender } from './launch-telemetry.ts'

export type LaunchTrailOptions = Omit<LaunchTelemetryOptions, 'client' | 'log'> &
  Omit<TelemetryClientOptions, 'runId'>

/**
 * The trail of a launch with its outbox in the run's folder. It never rejects, as no launch may fail for it: where the
 * outbox can't be read, that is an error in the log, and records go nowhere rather than over what may be in it.
 */
export async function openLaunchTelemetry(options: LaunchTrailOptions): Promise<LaunchTelemetry> {
  const { log = WARNINGS } = options
  const client = await TelemetryClient.open(options).catch((error: unknown): RecordSender => {
    log.error(`there is no telemetry of this launch, as its outbox can't be read: ${String(error)}`)
    return {
      send: async () => 'unwritten',
      flush: async () => ({ accepted: 0, dead: 0, waiting: 0 }),
    }
  })
  return new LaunchTelemetry({ ...options, log, client })
}
