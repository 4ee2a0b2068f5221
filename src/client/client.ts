import { checkOptions } from '../core/options.ts'
import type { NamespaceParts, Scope } from '../engine/keys.ts'
import type { LedgerStats } from '../ledger/metrics.ts'
import { LaunchesClient, TokensClient } from './administration-client.ts'
import { LedgerClient } from './ledger-client.ts'
import { all, pagesOf } from './pages.ts'
import { runPath, scopePath } from './paths.ts'
import { RunsClient } from './runs-client.ts'
import { EventsClient, TracesClient } from './traces-client.ts'
import { type ClientOptions, problemIn, Transport } from './transport.ts'
import { CellsClient, KvClient } from './values-client.ts'

const READY_TIMEOUT_MS = 5_000

/** Identifies a store, and distinguishes its folder from copies. */
export interface StoreIdentity {
  /** The same as `db.stats().storeId`. A copy of the store has the same id. */
  readonly storeId?: string
  /** The same as `db.stats().folder`, on the server's machine. */
  readonly folder?: { readonly device: string; readonly inode: string }
}

/** A client of a server. It reaches the data of the token's tenant, and has the methods of a local database. */
export class AnnalsClient {
  /** The run index, as `db.runs`. */
  readonly runs: RunsClient
  /** The ledger, as `db.ledger`. */
  readonly ledger: LedgerClient
  /** Key-value entries, as `db.kv`. */
  readonly kv: KvClient
  /** State cells, as `db.cells`. */
  readonly cells: CellsClient
  /** Traces, as `db.traces`. */
  readonly traces: TracesClient
  /** The runs' own logs, as `db.events`, for reading. */
  readonly events: EventsClient
  /** The launches of the server. */
  readonly launches: LaunchesClient
  /** The access tokens of the server. */
  readonly tokens: TokensClient
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(options: ClientOptions) {
    const transport = new Transport(options)
    this.#transport = transport
    this.runs = new RunsClient(transport)
    this.ledger = new LedgerClient(transport)
    this.kv = new KvClient(transport)
    this.cells = new CellsClient(transport)
    this.traces = new TracesClient(transport)
    this.events = new EventsClient(transport)
    this.launches = new LaunchesClient(transport)
    this.tokens = new TokensClient(transport)
  }

  /** The tenant of the token, and the counters of its ledger since the server was started. */
  async stats(): Promise<{ readonly tenant: string; readonly ledger: LedgerStats }> {
    return this.#transport.json('/v1/stats')
  }

  /** The identity of the server's store; empty for a store on PostgreSQL or in memory. */
  async store(): Promise<StoreIdentity> {
    return this.#transport.json('/v1/store')
  }

  /** Exports a run as a bundle, read on demand. `verifyBundle` checks that it is complete. */
  async *exportRun(runId: Scope): AsyncGenerator<Uint8Array, void, void> {
    const stopped = new AbortController()
    try {
      const response = await this.#transport.send(runPath(runId, 'bundle'), { signal: stopped.signal })
      if (!response.ok) throw await problemIn(response)
      yield* response.body as AsyncIterable<Uint8Array>
    } finally {
      stopped.abort()
    }
  }

  /** The scopes that hold data but have no run, in byte order. */
  async scopes(options: { readonly prefix?: string } = {}): Promise<readonly NamespaceParts[]> {
    checkOptions('scopes', options, ['prefix'])
    return all(pagesOf<NamespaceParts>(this.#transport, '/v1/scopes', 'scopes', { query: { ...options } }))
  }

  /** Deletes all data of a scope without a run permanently. */
  async drop(scope: Scope | NamespaceParts): Promise<void> {
    await this.#transport.json(scopePath(scope), { method: 'DELETE' })
  }

  /** Whether the server is ready. Throws `UNAVAILABLE` if it cannot be reached. */
  async ready(): Promise<boolean> {
    const response = await this.#transport.send('/ready', { signal: AbortSignal.timeout(READY_TIMEOUT_MS) })
    await response.arrayBuffer()
    return response.ok
  }
}

/**
 * Creates a client of a server. It holds no connection, so there is nothing to close.
 * @example
 * const server = createServer(db)
 * const client = createClient({ url: 'http://localhost', fetch: (url, init) => server.fetch(new Request(url, init)) })
 * await client.kv.put(run, 'greeting', 'hello')
 * await db.kv.get(run, 'greeting') // → 'hello'
 */
export function createClient(options: ClientOptions): AnnalsClient {
  return new AnnalsClient(options)
}
