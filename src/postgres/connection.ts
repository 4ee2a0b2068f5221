import type pg from 'pg'
import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { loadDriver } from './driver.ts'
import { failure, isHopeless, messageOf } from './failure.ts'
import type { Statement } from './statements.ts'
import { RESULT_TYPES } from './wire.ts'

export interface ConnectionSettings {
  readonly connectionString: string
  readonly schema: string
  /** For connecting, however often it has to be tried, and for each statement. */
  readonly timeoutMs: number
  /** For each lock that a statement needs; as long as the statement may take without it. */
  readonly lockMs?: number
}

const BACKOFF = { firstMs: 20, maxMs: 500 }

/**
 * Only indexes, because a plan is made once and kept: made while a table is
 * empty, it would go through all of it later. A commit must be on disk when it
 * is answered, and each statement must see what its locks have waited for,
 * whatever the defaults of the database are.
 */
const SESSION = `SELECT set_config(name, value, false) FROM (VALUES
  ('bytea_output', 'hex'), ('search_path', $1), ('jit', 'off'), ('plan_cache_mode', 'force_generic_plan'),
  ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), ('enable_bitmapscan', 'off'),
  ('default_transaction_isolation', 'read committed'), ('lock_timeout', $2), ('statement_timeout', '0'),
  ('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END)
) AS settings (name, value)`

export type Row = Readonly<Record<string, unknown>>

/** One session of the server. Statements are sent without waiting for those before, and answered in order. */
export class Connection {
  readonly #client: pg.Client
  #isOpen = true

  private constructor(client: pg.Client) {
    this.#client = client
  }

  /** Tries until it works or the time is over: a server that starts again is not an error yet. */
  static async open(settings: ConnectionSettings, signal?: AbortSignal): Promise<Connection> {
    const { Client } = await loadDriver()
    const end = performance.now() + settings.timeoutMs
    for (let retry = 0; ; retry++) {
      try {
        return await Connection.#attempt(Client, settings, Math.max(1, Math.ceil(end - performance.now())))
      } catch (error) {
        const pauseMs = backoffMs(retry, BACKOFF)
        if (isHopeless(error) || signal?.aborted === true || performance.now() + pauseMs > end) {
          throw new AnnalsError('IO_ERROR', `PostgreSQL can't be reached: ${messageOf(error)}`, {}, error)
        }
        await pause(pauseMs, { signal })
      }
    }
  }

  static async #attempt(
    Client: typeof pg.Client,
    { connectionString, schema, timeoutMs, lockMs = 0 }: ConnectionSettings,
    connectMs: number,
  ): Promise<Connection> {
    const client = new Client({
      connectionString,
      connectionTimeoutMillis: connectMs,
      query_timeout: timeoutMs,
      keepAlive: true,
      pipeline: true,
      application_name: 'annals',
    })
    const connection = new Connection(client)
    // Without a listener a lost connection would end the process.
    client.on('error', () => connection.#lose())
    client.on('end', () => connection.#lose())
    try {
      await client.connect()
      await client.query(SESSION, [`${quoted(schema)}, pg_temp`, `${lockMs}`])
    } catch (error) {
      connection.destroy()
      throw error
    }
    return connection
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** What the server refuses, and a lost connection, come out as `pg` throws them: who asks knows what they mean. */
  async run(statement: Statement, values: readonly unknown[]): Promise<readonly Row[]> {
    const { name, text } = statement
    const query: pg.QueryConfig = {
      name,
      text,
      values: [...values],
      types: RESULT_TYPES as pg.CustomTypesConfig,
    }
    return (await this.#client.query(query)).rows
  }

  /** For what is not prepared: transactions, LISTEN, migrations. */
  async execute(text: string): Promise<readonly Row[]> {
    const result: unknown = await this.#client.query(text)
    return (result as { readonly rows?: readonly Row[] }).rows ?? []
  }

  onNotification(listener: (channel: string, payload: string) => void): void {
    this.#client.on('notification', ({ channel, payload }) => listener(channel, payload ?? ''))
  }

  /** At once if it is lost already. */
  onLost(listener: () => void): void {
    if (this.#isOpen) this.#client.once('end', listener)
    else listener()
  }

  /** Ends the session after what was sent. */
  async end(): Promise<void> {
    if (!this.#isOpen) return
    this.#isOpen = false
    await this.#client.end().catch((error: unknown) => {
      throw failure(error)
    })
  }

  /** Without a word: for a connection whose state nobody knows. */
  destroy(): void {
    this.#isOpen = false
    const { stream } = (this.#client as unknown as { connection: { stream: { destroy(): void } } }).connection
    stream.destroy()
  }

  #lose(): void {
    this.#isOpen = false
  }
}

export function quoted(identifier: string): string {
  return `"${identifier.replaceAll('"', '""')}"`
}
