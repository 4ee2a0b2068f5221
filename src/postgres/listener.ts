import type { TreeId } from '../engine/storage.ts'
import { treeAddress } from './address.ts'
import { Connection, type ConnectionSettings, quoted } from './connection.ts'
import { failure, isHeldUp } from './failure.ts'
import { closedError } from './lane.ts'
import { bytes } from './reads.ts'
import { STATEMENTS } from './statements.ts'
import { waitForWriters } from './writers.ts'

interface Subscription {
  readonly tree: TreeId
  readonly call: () => void
  channel: string
  topics: readonly string[]
}

/** How often it is looked for commits that nobody could be told of. */
const LOOK_MS = 5_000

/**
 * One connection that listens, for all subscribers of this process.
 *
 * silent → listening (first subscription) → lost → listening …
 * While the connection was lost, anything may have happened: once it is back,
 * every subscriber is called. A subscriber reads on from what it has seen, so
 * it misses nothing; that a call means something new was never promised.
 * The same if writers found the server's queue of notifications nearly full.
 */
export class Listener {
  readonly #settings: ConnectionSettings
  readonly #subscriptions = new Set<Subscription>()
  readonly #closing = new AbortController()
  #connection: Promise<Connection> | undefined
  /** On the connection as it is now. */
  #channels = new Map<string, Promise<unknown>>()
  #looking: NodeJS.Timeout | undefined
  /** What was counted at the last look, and whether it was more than before. */
  #untold: { readonly count: number; readonly isMore: boolean } | undefined

  constructor(settings: ConnectionSettings) {
    this.#settings = settings
  }

  async subscribe(tree: TreeId, call: () => void): Promise<() => void> {
    const { scope, tag } = treeAddress(tree)
    const subscription: Subscription = { tree: { scope, tag }, call, channel: '', topics: [] }
    try {
      const connection = await this.#connected()
      // Before it is waited for writers: should the connection be lost meanwhile, the next one knows of it.
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

  /** Calls everybody once more: there will be nothing else. */
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
      const connection = await Connection.open(this.#settings, this.#closing.signal)
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

  /** Writers who come later will tell us; those before have to be waited for. */
  async #register(connection: Connection, subscription: Subscription): Promise<void> {
    const { scope, tag } = subscription.tree
    const [row] = await connection.run(STATEMENTS.listenTo, [bytes(scope), tag])
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
      // The time-out of one attempt is not the end: who subscribed relies on it.
      () => this.#reconnect(),
    )
  }

  /** Calls after a loss: at once, and again when those are through who did not know that somebody listens. */
  async #catchUp(connection: Connection, subscription: Subscription): Promise<void> {
    subscription.call()
    while (connection.isOpen && this.#subscriptions.has(subscription)) {
      try {
        await waitForWriters(connection, this.#settings, subscription.tree.scope)
        subscription.call()
        return
      } catch (error) {
        // Somebody holds a lock for long: then again. Anything else is a matter of the connection, and of the next one.
        if (!isHeldUp(error)) connection.destroy()
      }
    }
  }

  /** A commit is counted before it is seen: so it is called after the look that finds it, and after the next one. */
  async #look(): Promise<void> {
    const connection = await this.#connection?.catch(() => undefined)
    if (connection === undefined || this.#subscriptions.size === 0) return
    try {
      const [row] = await connection.run(STATEMENTS.untold, [])
      const { count, isMore } = this.#untold ?? { count: 0, isMore: false }
      this.#untold = { count: row['count'] as number, isMore: row['count'] !== count }
      if (isMore || this.#untold.isMore) for (const { call } of [...this.#subscriptions]) call()
    } catch {
      // The next connection calls everybody.
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
