import type { TreeId } from '../engine/storage.ts'
import { treeAddress } from './address.ts'
import { Connection, type ConnectionSettings, quoted } from './connection.ts'
import { failure } from './failure.ts'
import { closedError } from './lane.ts'
import { bytes } from './reads.ts'
import { STATEMENTS } from './statements.ts'

interface Subscription {
  readonly tree: TreeId
  readonly call: () => void
  channel: string
  topics: readonly string[]
}

/**
 * One connection that listens, for all subscribers of this process.
 *
 * silent → listening (first subscription) → lost → listening …
 * While the connection was lost, anything may have happened: once it is back,
 * every subscriber is called. A subscriber reads on from what it has seen, so
 * it misses nothing; that a call means something new was never promised.
 */
export class Listener {
  readonly #settings: ConnectionSettings
  readonly #subscriptions = new Set<Subscription>()
  readonly #closing = new AbortController()
  #connection: Promise<Connection> | undefined
  /** On the connection as it is now. */
  #channels = new Map<string, Promise<unknown>>()

  constructor(settings: ConnectionSettings) {
    this.#settings = settings
  }

  async subscribe(tree: TreeId, call: () => void): Promise<() => void> {
    const { scope, tag } = treeAddress(tree)
    const subscription: Subscription = { tree: { scope, tag }, call, channel: '', topics: [] }
    try {
      await this.#enforce(await this.#connected(), subscription)
      if (this.#closing.signal.aborted) throw closedError()
    } catch (error) {
      throw failure(error)
    }
    this.#subscriptions.add(subscription)
    return () => {
      this.#subscriptions.delete(subscription)
    }
  }

  /** Calls everybody once more: there will be nothing else. */
  async close(): Promise<void> {
    this.#closing.abort()
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
      await Promise.all([...this.#subscriptions].map(subscription => this.#enforce(connection, subscription)))
      return connection
    } catch (error) {
      this.#connection = undefined
      throw failure(error)
    }
  }

  /** Writers who come later will tell us; those before are waited for. */
  async #enforce(connection: Connection, subscription: Subscription): Promise<void> {
    const { scope, tag } = subscription.tree
    const [row] = await connection.run(STATEMENTS.listenTo, [bytes(scope), tag])
    subscription.channel = row['channel'] as string
    subscription.topics = [row['tree_topic'] as string, row['scope_topic'] as string]
    await this.#listen(connection, subscription.channel)
    await connection.run(STATEMENTS.waitForWriters, [bytes(scope)])
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
      () => {
        for (const { call } of [...this.#subscriptions]) call()
      },
      // The time-out of one attempt is not the end: who subscribed relies on it.
      () => this.#reconnect(),
    )
  }

  #hear(channel: string, payload: string): void {
    const heard = new Set(payload.split(','))
    for (const subscription of [...this.#subscriptions]) {
      if (subscription.channel !== channel) continue
      if (subscription.topics.some(topic => heard.has(topic))) subscription.call()
    }
  }
}
