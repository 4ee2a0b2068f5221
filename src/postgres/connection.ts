import type { Socket } from 'node:net'
import type pg from 'pg'
import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { loadDriver } from './driver.ts'
import { failure, isHopeless, isNowhere, messageOf } from './failure.ts'
import type { Statement } from './statements.ts'
import { RESULT_TYPES } from './wire.ts'

export interface ConnectionSettings {
  readonly connectionString: string
  readonly schema: string
  /** The time-out of connecting, retries included, and of each statement. */
  readonly timeoutMs: number
  /** The time-out of each lock that a statement waits for; the statement's time-out by default. */
  readonly lockMs?: number
}

const BACKOFF = { firstMs: 20, maxMs: 500 }

/**
 * The settings of each session, whatever the defaults of the database are.
 * Plans may only use indexes, because a plan is made once and kept: a plan made
 * for an empty table would later scan all of it. A commit must be on disk before
 * it is answered. Each statement must see the commits that its locks waited for.
 */
const SESSION = `SELECT set_config(name, value, false) FROM (VALUES
  ('bytea_output', 'hex'), ('search_path', $1), ('jit', 'off'), ('plan_cache_mode', 'force_generic_plan'),
  ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), ('enable_bitmapscan', 'off'),
  ('default_transaction_isolation', 'read committed'), ('lock_timeout', $2), ('statement_timeout', '0'),
  ('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END)
) AS settings (name, value)`

export type Row = Readonly<Record<string, unknown>>

/** One session on the server. It sends statements without waiting for earlier answers, and gets the answers in order. */
export class Connection {
  readonly #client: pg.Client
  #isOpen = true

  private constructor(client: pg.Client) {
    this.#client = client
  }

  /**
   * Connects. Retries until the time-out, because the server may be restarting. `isFirst` says that the store is being
   * opened: then a refused connection or an unknown host is an error at once, because the address is probably wrong.
   */
  static async open(
    settings: ConnectionSettings,
    { signal, isFirst = false }: { readonly signal?: AbortSignal; readonly isFirst?: boolean } = {},
  ): Promise<Connection> {
    const { Client } = await loadDriver()
    const end = performance.now() + settings.timeoutMs
    for (let retry = 0; ; retry++) {
      try {
        return await Connection.#attempt(Client, settings, Math.max(1, Math.ceil(end - performance.now())))
      } catch (error) {
        const pauseMs = backoffMs(retry, BACKOFF)
        const isFinal = isHopeless(error) || (isFirst && isNowhere(error)) || signal?.aborted === true
        if (isFinal || performance.now() + pauseMs > end) {
          throw new AnnalsError('IO_ERROR', `cannot connect to PostgreSQL: ${messageOf(error)}`, {}, error)
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
    // Without a listener, the error of a lost connection would end the process.
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

  /** Runs a prepared statement. Errors are those of `pg`; the caller decides what they mean. */
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

  /** Runs SQL that is not prepared: transactions, LISTEN, migrations. */
  async execute(text: string): Promise<readonly Row[]> {
    const result: unknown = await this.#client.query(text)
    return (result as { readonly rows?: readonly Row[] }).rows ?? []
  }

  /** Sends the statements that `send` runs in one packet, so that the server does not wake up for each of them. */
  together<T>(send: () => T): T {
    this.#stream.cork()
    try {
      return send()
    } finally {
      this.#stream.uncork()
    }
  }

  onNotification(listener: (channel: string, payload: string) => void): void {
    this.#client.on('notification', ({ channel, payload }) => listener(channel, payload ?? ''))
  }

  /** Calls back when the connection is lost; at once if it already is. */
  onLost(listener: () => void): void {
    if (this.#isOpen) this.#client.once('end', listener)
    else listener()
  }

  /** Ends the session after the statements that were sent. */
  async end(): Promise<void> {
    if (!this.#isOpen) return
    this.#isOpen = false
    await this.#client.end().catch((error: unknown) => {
      throw failure(error)
    })
  }

  /** Cuts a connection whose state is unknown, without the protocol's farewell. */
  destroy(): void {
    this.#isOpen = false
    this.#stream.destroy()
  }

  get #stream(): Pick<Socket, 'cork' | 'uncork' | 'destroy'> {
    return (this.#client as unknown as { connection: { stream: Socket } }).connection.stream
  }

  #lose(): void {
    this.#isOpen = false
  }
}

export function quoted(identifier: string): string {
  return `"${identifier.replaceAll('"', '""')}"`
}
