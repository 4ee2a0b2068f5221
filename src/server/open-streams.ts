import { AnnalsError } from '../core/errors.ts'
import { EventHub, type HubSource } from './event-hub.ts'
import { EventStream, type ReadBehind } from './event-stream.ts'
import type { RequestMetrics } from './metrics.ts'
import type { ServerSettings } from './options.ts'
import type { Credential, ServerContext } from './server-env.ts'
import type { TokenStore } from './tokens.ts'

/** The source of a stream. */
export interface Followed {
  /** Streams with the same name, of the same tenant, share a hub. */
  readonly name: string
  readonly source: HubSource
  readonly read: ReadBehind
  readonly position: number | string
}

const TICK_MS = 1_000
/** How often tokens are checked, in case the announcement of a revocation was missed. */
const CHECK_MS = 15_000

/** The open event streams of a server. Limits their number and ends those whose token expires or is revoked. */
export class OpenStreams {
  readonly #settings: ServerSettings
  readonly #tokens: TokenStore
  readonly #metrics: RequestMetrics
  readonly #streams = new Set<EventStream>()
  /** The number of streams of each token. */
  readonly #counts = new Map<string, number>()
  readonly #hubs = new Map<string, EventHub>()
  readonly #stop = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #isFollowing = false
  #checkedAt = 0

  constructor(settings: ServerSettings, tokens: TokenStore, metrics: RequestMetrics) {
    this.#settings = settings
    this.#tokens = tokens
    this.#metrics = metrics
  }

  open(c: ServerContext, followed: Followed): Response {
    const { streamStallMs: stallMs, heartbeatMs } = this.#settings
    const headers = {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-store',
      // Tells proxies not to buffer.
      'X-Accel-Buffering': 'no',
    }
    // A HEAD request has no body, so nothing would end the stream.
    if (c.req.method === 'HEAD') return new Response(null, { headers })
    if (this.#stop.signal.aborted) throw new AnnalsError('UNAVAILABLE', 'the server is closing')
    const credential = c.get('credential')
    this.#checkRoom(credential)
    const outgoing = c.env?.outgoing
    const stream = new EventStream({
      hub: this.#hub(`${credential.tenant}\0${followed.name}`, followed.source),
      read: followed.read,
      position: followed.position,
      credential,
      requestId: c.get('requestId'),
      stallMs,
      heartbeatMs,
      ended: ended => this.#remove(ended),
      cut: outgoing === undefined ? undefined : () => void outgoing.destroy(),
    })
    this.#streams.add(stream)
    this.#count(credential, 1)
    this.#watch(stream)
    // Also if the connection closes before the first read.
    outgoing?.once('close', () => stream.end())
    return new Response(stream.body, { headers })
  }

  close(): void {
    this.#stop.abort()
    clearInterval(this.#timer)
    for (const stream of [...this.#streams]) stream.end()
  }

  #hub(name: string, source: HubSource): EventHub {
    const known = this.#hubs.get(name)
    if (known !== undefined) return known
    const hub = new EventHub(source, () => {
      if (this.#hubs.get(name) === hub) this.#hubs.delete(name)
    })
    this.#hubs.set(name, hub)
    return hub
  }

  /** Throws `RATE_LIMITED` if there are too many streams, in total or for this token. */
  #checkRoom({ tokenId }: Credential): void {
    const { streamsMax, streamsPerToken } = this.#settings
    if (this.#streams.size >= streamsMax) {
      const message = `all ${streamsMax} event streams are in use; try again later`
      throw new AnnalsError('RATE_LIMITED', message, { streamsMax })
    }
    if (tokenId === undefined || (this.#counts.get(tokenId) ?? 0) < streamsPerToken) return
    const message = `this token already has ${streamsPerToken} event streams; close one first`
    throw new AnnalsError('RATE_LIMITED', message, { streamsPerToken })
  }

  #count({ tokenId }: Credential, change: number): void {
    this.#metrics.openStreams = this.#streams.size
    if (tokenId === undefined) return
    const count = (this.#counts.get(tokenId) ?? 0) + change
    if (count === 0) this.#counts.delete(tokenId)
    else this.#counts.set(tokenId, count)
  }

  #remove(stream: EventStream): void {
    // A stream may report its end twice.
    if (!this.#streams.delete(stream)) return
    this.#count(stream.credential, -1)
    if (this.#streams.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
    // Hubs without a listener yet.
    this.#hubs.clear()
  }

  #watch(stream: EventStream): void {
    const { heartbeatMs, streamStallMs } = this.#settings
    this.#timer ??= setInterval(() => this.#tick(), Math.min(TICK_MS, heartbeatMs, streamStallMs)).unref()
    if (stream.credential.tokenId === undefined) return
    void this.#followRevocations()
    // The token may have been revoked since it was checked.
    void this.#check([stream.credential.tokenId])
  }

  #tick(): void {
    const now = performance.now()
    const time = this.#settings.clock()
    for (const stream of [...this.#streams]) {
      const { expiresAt } = stream.credential
      if (expiresAt !== undefined && expiresAt <= time) stream.end(expired())
      else if (stream.beat(now)) this.#metrics.streamsStalled++
    }
    if (now - this.#checkedAt < CHECK_MS) return
    this.#checkedAt = now
    void this.#followRevocations()
    void this.#check(new Set([...this.#streams].map(({ credential }) => credential.tokenId)))
  }

  async #followRevocations(): Promise<void> {
    if (this.#isFollowing) return
    this.#isFollowing = true
    try {
      for await (const id of this.#tokens.revocations(this.#stop.signal)) this.#endOf(id)
    } catch (error) {
      // If the database is unreachable, `#check` finds revoked tokens later.
      this.#warn('revocations are not followed', error)
    } finally {
      this.#isFollowing = false
    }
  }

  /** Ends the streams of tokens that no longer exist. */
  async #check(ids: Iterable<string | undefined>): Promise<void> {
    try {
      for (const id of ids) {
        if (id === undefined || id === STATIC) continue
        if ((await this.#tokens.get(id)) === undefined) this.#endOf(id)
      }
    } catch (error) {
      // Repeated at the next tick. While the database is unreachable, streams get no data either.
      this.#warn('tokens could not be looked up', error)
    }
  }

  /** Writes to the log, because no request is waiting for this work. */
  #warn(message: string, error: unknown): void {
    const { log, clock } = this.#settings
    log?.(JSON.stringify({ time: new Date(clock()).toISOString(), message, error: String(error) }))
  }

  #endOf(tokenId: string): void {
    for (const stream of [...this.#streams]) {
      if (stream.credential.tokenId === tokenId) stream.end(expired())
    }
  }
}

/** The id of `staticToken`, which cannot be revoked. */
const STATIC = 'static'

function expired(): AnnalsError {
  return new AnnalsError('UNAUTHENTICATED', 'the token has expired, or was revoked')
}
