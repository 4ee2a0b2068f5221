import { setTimeout as sleep } from 'node:timers/promises'
import type { AnnalsClient } from '../client.ts'
import {
  type Annals,
  type ChainReport,
  type Event,
  type Ledger,
  namespace,
  type Runs,
  type Scope,
  type StoredTrace,
} from '../index.ts'

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
  const scopeOf = located(db.runs, async () => db.tenant)
  return {
    runs: db.runs,
    ledger: db.ledger,
    traces: {
      queryByTime: async (runId, startMs, endMs) =>
        db.traces.queryByTime(await scopeOf(runId), startMs, endMs),
    },
    events: {
      count: async runId => events.length(await scopeOf(runId)),
      exists: async runId => (await events.length(await scopeOf(runId))) > 0,
      async *iterate(runId, options) {
        yield* events.iterate(await scopeOf(runId), options)
      },
      async *tail(runId, options) {
        yield* events.tail(await scopeOf(runId), options)
      },
      verifyChain: async runId => events.verifyChain(await scopeOf(runId)),
    },
    exportRun: runId => db.exportRun(runId),
    isLive,
    close: () => db.close(),
  }
}

export function remoteSource(client: AnnalsClient): Source {
  const { events, ledger } = client
  const scopeOf = located(client.runs, async () => (await client.stats()).tenant)
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
    traces: {
      queryByTime: async (runId, startMs, endMs) =>
        client.traces.queryByTime(await scopeOf(runId), startMs, endMs),
    },
    events: {
      // A server counts them by verifying them, which is what it is asked for most.
      count: async runId => (await events.verifyChain(await scopeOf(runId))).length,
      exists: async runId => {
        for await (const _ of events.iterate(await scopeOf(runId))) return true
        return false
      },
      async *iterate(runId, options) {
        yield* events.iterate(await scopeOf(runId), options)
      },
      async *tail(runId, options) {
        yield* polled(events, await scopeOf(runId), options)
      },
      verifyChain: async runId => events.verifyChain(await scopeOf(runId)),
    },
    exportRun: runId => client.exportRun(runId),
    isLive: true,
    close: async () => undefined,
  }
}

/**
 * Finds the scope of a run by its id. Runs and the ledger are found wherever they live; what a run has in its own log, or
 * as traces, has to be asked for in its app and agent.
 */
function located(
  runs: Pick<Runs, 'get'>,
  tenantOf: () => Promise<string>,
): (runId: string) => Promise<Scope> {
  return async runId => {
    const { app, agent } = (await runs.get(runId)) ?? {}
    if (app === undefined && agent === undefined) return runId
    const tenant = await tenantOf()
    return namespace({ tenant, app: app ?? 'default', agent: agent ?? 'default', run: runId })
  }
}

const POLL_MS = 500

/** A server streams the ledger; of a run's own log it is asked again and again. */
async function* polled(
  events: AnnalsClient['events'],
  run: Scope,
  { from, signal }: { readonly from: number; readonly signal: AbortSignal },
): AsyncGenerator<Event, void, void> {
  for (let next = from; !signal.aborted; ) {
    for await (const event of events.iterate(run, { from: next })) {
      yield event
      next = event.sequence + 1
      if (signal.aborted) return
    }
    await sleep(POLL_MS, undefined, { signal }).catch(() => undefined)
  }
}
