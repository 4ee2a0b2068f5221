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

/** What tells a store from all others, and its folder from copies of it. */
export interface StoreIdentity {
  /** As `db.stats().storeId`; a copy has the same. */
  readonly storeId?: string
  /** As `db.stats().folder`, on the server's machine. */
  readonly folder?: { readonly device: string; readonly inode: string }
}

/** A server's database, as the holder of the token sees it; its parts have the methods that a local one's have. */
export class AnnalsClient {
  readonly runs: RunsClient
  readonly ledger: LedgerClient
  readonly kv: KvClient
  readonly cells: CellsClient
  readonly traces: TracesClient
  readonly events: EventsClient
  readonly launches: LaunchesClient
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

  /** The tenant that the token reaches, and what its ledger has counted since the server was started. */
  async stats(): Promise<{ readonly tenant: string; readonly ledger: LedgerStats }> {
    return this.#transport.json('/v1/stats')
  }

  /** Which store the server has; empty for one on PostgreSQL or in memory. */
  async store(): Promise<StoreIdentity> {
    return this.#transport.json('/v1/store')
  }

  /** A run as a bundle, read as it is asked for: `verifyBundle` says whether all of it came. */
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
    const pages = pagesOf<NamespaceParts>(this.#transport, '/v1/scopes', 'scopes', {
      limit: undefined,
      place: 'after',
      query: { ...options },
    })
    return all(pages)
  }

  /** Removes all that a scope without a run holds, for good. */
  async drop(scope: Scope | NamespaceParts): Promise<void> {
    await this.#transport.json(scopePath(scope), { method: 'DELETE' })
  }

  /** Whether the server takes requests; throws if it can't be reached. */
  async ready(): Promise<boolean> {
    const response = await this.#transport.send('/ready', { signal: AbortSignal.timeout(READY_TIMEOUT_MS) })
    await response.arrayBuffer()
    return response.ok
  }
}

/**
 * A client of a server. It holds no connection of its own: there is nothing to close.
 * @example
 * const server = createServer(db)
 * const client = createClient({ url: 'http://localhost', fetch: (url, init) => server.fetch(new Request(url, init)) })
 * await client.kv.put(run, 'greeting', 'hello')
 * await db.kv.get(run, 'greeting') // → 'hello'
 */
export function createClient(options: ClientOptions): AnnalsClient {
  return new AnnalsClient(options)
}
