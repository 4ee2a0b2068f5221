import { toBuffer } from '../core/bytes.ts'
import type { TreeId } from '../engine/storage.ts'
import { treeAddress } from './address.ts'
import { Connection, type ConnectionSettings, quoted } from './connection.ts'
import { failure, isHeldUp } from './failure.ts'
import { closedError } from './lane.ts'
import { STATEMENTS } from './statements.ts'
import { waitForWriters } from './writers.ts'

interface Subscription {
  readonly tree: TreeId
  readonly call: () => void
  channel: string
  topics: readonly string[]
}

/** How often the listener looks for commits that sent no notification. */
const LOOK_MS = 5_000

/**
 * Listens for notifications on one connection, for all subscribers of this
 * process.
 *
 * silent → listening (first subscription) → lost → listening …
 *
 * After a lost connection every subscriber is called, because it may have
 * missed notifications. A subscriber reads on from its last position, so an
 * unneeded call does no harm. The same happens if commits sent no notification
 * because the server's queue was nearly full.
 */
export class Listener {
  readonly #settings: ConnectionSettings
  readonly #subscriptions = new Set<Subscription>()
  readonly #closing = new AbortController()
  #connection: Promise<Connection> | undefined
  /** The channels that the current connection listens to. */
  #channels = new Map<string, Promise<unknown>>()
  #looking: NodeJS.Timeout | undefined
  /** The count of commits without notification at the last look, and whether it had grown by then. */
  #untold: { readonly count: number; readonly isMore: boolean } | undefined

  constructor(settings: ConnectionSettings) {
    this.#settings = settings
  }

  async subscribe(tree: TreeId, call: () => void): Promise<() => void> {
    const { scope, tag } = treeAddress(tree)
    const subscription: Subscription = { tree: { scope, tag }, call, channel: '', topics: [] }
    try {
      const connection = await this.#connected()
      // Added before the wait: if the connection is lost meanwhile, the next one registers the subscription.
      this.#subscriptions.add(subscription)
      await this.#register(connection, subscription)
      await waitForWriters(connection, this.#settings, scope)
      if (this.#closing.signal.aborted) throw closedError()
    } catch (error) {
      this.#subscriptions.delete(subscription)
      throw failure(error)
    }
    this.#looking ??= setInterval(() => void this.#look(), LOOK_MS).unref()
    return () => {
      this.#subscriptions.delete(subscription)
    }
  }

  /** Calls every subscriber a last time. */
  async close(): Promise<void> {
    this.#closing.abort()
    clearInterval(this.#looking)
    for (const { call } of this.#subscriptions) queueMicrotask(call)
    this.#subscriptions.clear()
    const connection = await this.#connection?.catch(() => undefined)
    await connection?.end()
  }

  #connected(): Promise<Connection> {
    this.#connection ??= this.#connect()
    return this.#connection
  }

  async #connect(): Promise<Connection> {
    try {
      const connection = await Connection.open(this.#settings, { signal: this.#closing.signal })
      if (this.#closing.signal.aborted) throw closedError()
      this.#channels = new Map()
      connection.onNotification((channel, payload) => this.#hear(channel, payload))
      connection.onLost(() => this.#reconnect())
      await Promise.all(
        [...this.#subscriptions].map(subscription => this.#register(connection, subscription)),
      )
      return connection
    } catch (error) {
      this.#connection = undefined
      throw failure(error)
    }
  }

  /** Later writers notify this session. Earlier ones may not, so the caller waits for them. */
  async #register(connection: Connection, subscription: Subscription): Promise<void> {
    const { scope, tag } = subscription.tree
    const [row] = await connection.run(STATEMENTS.listenTo, [toBuffer(scope), tag])
    subscription.channel = row['channel'] as string
    subscription.topics = [row['tree_topic'] as string, row['scope_topic'] as string]
    await this.#listen(connection, subscription.channel)
  }

  #listen(connection: Connection, channel: string): Promise<unknown> {
    let listening = this.#channels.get(channel)
    if (listening === undefined) {
      listening = connection.execute(`LISTEN ${quoted(channel)}`)
      this.#channels.set(channel, listening)
    }
    return listening
  }

  #reconnect(): void {
    this.#connection = undefined
    if (this.#closing.signal.aborted || this.#subscriptions.size === 0) return
    this.#connected().then(
      connection => {
        for (const subscription of [...this.#subscriptions]) void this.#catchUp(connection, subscription)
      },
      // Subscribers rely on the connection, so a time-out is not the end.
      () => this.#reconnect(),
    )
  }

  /** Calls a subscriber after a loss: at once, and again after the commits that did not know of the new session. */
  async #catchUp(connection: Connection, subscription: Subscription): Promise<void> {
    subscription.call()
    while (connection.isOpen && this.#subscriptions.has(subscription)) {
      try {
        await waitForWriters(connection, this.#settings, subscription.tree.scope)
        subscription.call()
        return
      } catch (error) {
        // A held lock is waited for again. After any other error a new connection takes over.
        if (!isHeldUp(error)) connection.destroy()
      }
    }
  }

  /** A commit is counted before it is visible. So subscribers are called after the look that finds it and after the next one. */
  async #look(): Promise<void> {
    const connection = await this.#connection?.catch(() => undefined)
    if (connection === undefined || this.#subscriptions.size === 0) return
    try {
      const [row] = await connection.run(STATEMENTS.untold, [])
      const { count, isMore } = this.#untold ?? { count: 0, isMore: false }
      this.#untold = { count: row['count'] as number, isMore: row['count'] !== count }
      if (isMore || this.#untold.isMore) for (const { call } of [...this.#subscriptions]) call()
    } catch {
      // The next connection calls every subscriber.
      connection.destroy()
    }
  }

  #hear(channel: string, payload: string): void {
    const heard = new Set(payload.split(','))
    for (const subscription of [...this.#subscriptions]) {
      if (subscription.channel !== channel) continue
      if (subscription.topics.some(topic => heard.has(topic))) subscription.call()
    }
  }
}
