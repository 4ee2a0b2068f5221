import { setTimeout as sleep } from 'node:timers/promises'
import type { AnnalsClient } from '../client.ts'
import type { Annals, ChainReport, Event, Ledger, Runs, StoredTrace } from '../index.ts'

/** What commands read from: a store that they open themselves, or that of a server. */
export interface Source {
  readonly runs: Pick<Runs, 'get' | 'query'>
  readonly ledger: Pick<
    Ledger,
    'fetchEvents' | 'iterateEvents' | 'getSnapshot' | 'replaySnapshot' | 'verifyRun' | 'alerts' | 'subscribe'
  >
  readonly events: SourceEvents
  readonly traces: {
    queryByTime(runId: string, startMs: number, endMs: number): Promise<readonly StoredTrace[]>
  }
  exportRun(runId: string): AsyncIterable<Uint8Array>
  /** Whether others can write while this is open: a folder is open in one process alone. */
  readonly isLive: boolean
  close(): Promise<void>
}

/** The log that a run has of its own. */
interface SourceEvents {
  /** How many there are. */
  count(runId: string): Promise<number>
  /** Whether there is anything in it. */
  exists(runId: string): Promise<boolean>
  iterate(runId: string, options: { readonly from: number }): AsyncIterable<Event>
  /** Those that are there, then new ones as they come. */
  tail(runId: string, options: { readonly from: number; readonly signal: AbortSignal }): AsyncIterable<Event>
  verifyChain(runId: string): Promise<ChainReport>
}

export function localSource(db: Annals, isLive: boolean): Source {
  const { events } = db
  return {
    runs: db.runs,
    ledger: db.ledger,
    traces: db.traces,
    events: {
      count: runId => events.length(runId),
      exists: async runId => (await events.length(runId)) > 0,
      iterate: (runId, options) => events.iterate(runId, options),
      tail: (runId, options) => events.tail(runId, options),
      verifyChain: runId => events.verifyChain(runId),
    },
    exportRun: runId => db.exportRun(runId),
    isLive,
    close: () => db.close(),
  }
}

export function remoteSource(client: AnnalsClient): Source {
  const { events, ledger } = client
  return {
    runs: client.runs,
    ledger: {
      fetchEvents: (runId, options) => ledger.fetchEvents(runId, options),
      iterateEvents: (runId, options) => ledger.iterateEvents(runId, options),
      getSnapshot: runId => ledger.getSnapshot(runId),
      // Without a number a server has no way to replay all: up to the last record is all.
      replaySnapshot: async (runId, options = {}) =>
        ledger.replaySnapshot(runId, {
          atSeq: options.atSeq ?? (await ledger.projectSnapshot(runId)).lastEventSeq,
        }),
      verifyRun: runId => ledger.verifyRun(runId),
      alerts: options => ledger.alerts(options),
      subscribe: options => ledger.subscribe(options),
    },
    traces: client.traces,
    events: {
      // A server counts them by verifying them, which is what it is asked for most.
      count: async runId => (await events.verifyChain(runId)).length,
      exists: async runId => {
        for await (const _ of events.iterate(runId)) return true
        return false
      },
      iterate: (runId, options) => events.iterate(runId, options),
      tail: (runId, options) => polled(events, runId, options),
      verifyChain: runId => events.verifyChain(runId),
    },
    exportRun: runId => client.exportRun(runId),
    isLive: true,
    close: async () => undefined,
  }
}

const POLL_MS = 500

/** A server streams the ledger; of a run's own log it is asked again and again. */
async function* polled(
  events: AnnalsClient['events'],
  runId: string,
  { from, signal }: { readonly from: number; readonly signal: AbortSignal },
): AsyncGenerator<Event, void, void> {
  for (let next = from; !signal.aborted; ) {
    for await (const event of events.iterate(runId, { from: next })) {
      yield event
      next = event.sequence + 1
      if (signal.aborted) return
    }
    await sleep(POLL_MS, undefined, { signal }).catch(() => undefined)
  }
}
