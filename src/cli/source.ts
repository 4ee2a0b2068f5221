import type { AnnalsClient } from '../client.ts'
import { pause } from '../core/pause.ts'
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

/** The part of a database that reading commands use: a store opened in this process, or one behind a server. */
export interface Source {
  readonly runs: Pick<Runs, 'get' | 'query'>
  readonly ledger: Pick<
    Ledger,
    'fetchEvents' | 'iterateEvents' | 'getSnapshot' | 'replaySnapshot' | 'verifyRun' | 'alerts' | 'subscribe'
  >
  readonly events: OwnEvents
  readonly traces: {
    queryByTime(runId: string, startMs: number, endMs: number): Promise<readonly StoredTrace[]>
  }
  exportRun(runId: string): AsyncIterable<Uint8Array>
  /** Whether other processes can write while this is open. A folder is open in one process only. */
  readonly isLive: boolean
  close(): Promise<void>
}

/** A run's own log (`db.events`). */
interface OwnEvents {
  count(runId: string): Promise<number>
  exists(runId: string): Promise<boolean>
  iterate(runId: string, options: { readonly from: number }): AsyncIterable<Event>
  /** The stored events, then new ones as they arrive. */
  tail(runId: string, options: { readonly from: number; readonly signal: AbortSignal }): AsyncIterable<Event>
  verifyChain(runId: string): Promise<ChainReport>
}

export function localSource(db: Annals, isLive: boolean): Source {
  const { scopeOf, events, ...shared } = sharedParts(db, async () => db.tenant)
  return {
    ...shared,
    ledger: db.ledger,
    events: {
      ...events,
      count: async runId => db.events.length(await scopeOf(runId)),
      exists: async runId => (await db.events.length(await scopeOf(runId))) > 0,
      async *tail(runId, options) {
        yield* db.events.tail(await scopeOf(runId), options)
      },
    },
    isLive,
    close: () => db.close(),
  }
}

export function remoteSource(client: AnnalsClient): Source {
  const { scopeOf, events, ...shared } = sharedParts(client, async () => (await client.stats()).tenant)
  return {
    ...shared,
    ledger: client.ledger,
    events: {
      ...events,
      // The API has no count; verification returns the length.
      count: async runId => (await events.verifyChain(runId)).length,
      exists: async runId => {
        for await (const _ of events.iterate(runId, { from: 0 })) return true
        return false
      },
      async *tail(runId, options) {
        yield* polled(client.events, await scopeOf(runId), options)
      },
    },
    isLive: true,
    close: async () => undefined,
  }
}

type SharedParts = Pick<Source, 'runs' | 'traces' | 'exportRun'> & {
  readonly scopeOf: (runId: string) => Promise<Scope>
  readonly events: Pick<OwnEvents, 'iterate' | 'verifyChain'>
}

/** The parts that a database and a client have alike. */
function sharedParts(db: Annals | AnnalsClient, tenantOf: () => Promise<string>): SharedParts {
  const { runs, traces, events } = db
  const scopeOf = located(runs, tenantOf)
  return {
    scopeOf,
    runs,
    traces: {
      queryByTime: async (runId, startMs, endMs) => traces.queryByTime(await scopeOf(runId), startMs, endMs),
    },
    events: {
      async *iterate(runId, options) {
        yield* events.iterate(await scopeOf(runId), options)
      },
      verifyChain: async runId => events.verifyChain(await scopeOf(runId)),
    },
    exportRun: runId => db.exportRun(runId),
  }
}

/**
 * Finds the scope of a run by its id. The run index and the ledger find a run in any app and agent; its own log and its
 * traces are stored under its namespace.
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

/** Polls, because a server streams the ledger but not a run's own log. */
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
    await pause(POLL_MS, { signal })
  }
}
