import type { EventHub, HubItem, HubListener, Position } from './event-hub.ts'
import { problemOf } from './problem.ts'
import type { Credential } from './server-env.ts'

/** Reads events after a position from the database. */
export type ReadBehind = (after: Position, limit: number) => Promise<readonly HubItem[]>

export interface StreamOptions {
  readonly hub: EventHub
  readonly read: ReadBehind
  /** The position of the last event that the client has. */
  readonly position: Position
  readonly credential: Credential
  readonly requestId: string
  /** A client that reads nothing for this long is disconnected. */
  readonly stallMs: number
  readonly heartbeatMs: number
  readonly ended: (stream: EventStream) => void
  /** Closes the connection; undefined if there is no socket. */
  readonly cut: (() => void) | undefined
}

const ENCODER = new TextEncoder()
/** The buffer of a stream. One chunk more than this may wait for the client. */
const BUFFER_BYTES = 64 * 1024
const RECORDS_FIRST = 8
const RECORDS_MAX = 256
/** An SSE comment, which clients ignore. It shows that the connection is alive. */
const HEARTBEAT = ENCODER.encode(':\n\n')
const HELLO = ENCODER.encode('retry: 1000\n\n')

/**
 * Server-sent events for one client: reading → live → (reading → live)* → ended. While reading, it reads missed events from the
 * database as fast as the client accepts them. While live, it passes on the events of the hub. It goes back to reading if there
 * is a gap or if the client is slow. So a slow client needs no memory and delays no other; one that reads nothing for too
 * long is disconnected.
 */
export class EventStream implements HubListener {
  readonly body: ReadableStream<Uint8Array>
  readonly credential: Credential
  readonly #options: StreamOptions
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined
  #position: Position
  /** The newest position that the hub has announced. */
  #heard: Position
  #isLive = false
  #hasEnded = false
  #count = RECORDS_FIRST
  #fullSince: number | undefined
  #lastSentAt = 0
  /** Resolves the pending wait, for room in the buffer or for new events. */
  #wake: (() => void) | undefined

  constructor(options: StreamOptions) {
    this.#options = options
    this.credential = options.credential
    this.#position = options.position
    this.#heard = options.position
    this.body = new ReadableStream<Uint8Array>(
      {
        start: controller => {
          this.#controller = controller
          controller.enqueue(HELLO)
          void this.#run()
        },
        pull: () => {
          this.#fullSince = undefined
          this.#wakeUp()
        },
        cancel: () => this.#end(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: BUFFER_BYTES }),
    )
  }

  take(previous: Position, last: Position, bytes: Uint8Array): void {
    if (last > this.#heard) this.#heard = last
    if (!this.#isLive || last <= this.#position) return
    if (previous === this.#position && this.#hasRoom()) {
      this.#send(bytes)
      this.#position = last
    } else {
      this.#isLive = false
      this.#wakeUp()
    }
  }

  /** Ends the stream. With an error, a last event `problem` tells the reason. */
  end(error?: unknown): void {
    if (this.#hasEnded) return
    const controller = this.#controller as ReadableStreamDefaultController<Uint8Array>
    if (!this.#hasRoom()) {
      const { cut } = this.#options
      // The buffer is full, so the client would not read the last event.
      this.#end()
      if (cut === undefined) controller.error(new Error('the event stream was ended'))
      else cut()
      return
    }
    if (error !== undefined) {
      const problem = problemOf(error, this.#options.requestId)
      this.#send(ENCODER.encode(`event: problem\ndata: ${JSON.stringify(problem)}\n\n`))
    }
    this.#end()
    controller.close()
  }

  /** Called regularly. Sends heartbeats. Returns true if it disconnected a client that does not read. */
  beat(now: number): boolean {
    const { stallMs, heartbeatMs } = this.#options
    if (this.#hasEnded) return false
    if (!this.#hasRoom()) {
      this.#fullSince ??= now
      if (now - this.#fullSince < stallMs) return false
      this.end()
      return true
    }
    if (now - this.#lastSentAt >= heartbeatMs) {
      this.#send(HEARTBEAT)
      this.#lastSentAt = now
    }
    return false
  }

  async #run(): Promise<void> {
    const { hub } = this.#options
    try {
      await this.#catchUp()
      if (this.#hasEnded) return
      hub.join(this, this.#position)
      while (!this.#hasEnded) {
        // Once more, because events may have arrived before the hub knew this stream.
        await this.#catchUp()
        if (this.#heard > this.#position) continue
        this.#isLive = true
        while (this.#isLive && !this.#hasEnded) await this.#woken()
      }
    } catch (error) {
      this.end(error)
    }
  }

  /** Reads from the database until there are no more events. */
  async #catchUp(): Promise<void> {
    for (;;) {
      while (!this.#hasRoom() && !this.#hasEnded) await this.#woken()
      if (this.#hasEnded) return
      const items = await this.#options.read(this.#position, this.#count)
      if (items.length === 0 || this.#hasEnded) return
      const bytes = ENCODER.encode(items.map(({ text }) => text).join(''))
      this.#send(bytes)
      this.#position = items[items.length - 1].position
      // Reads fewer events at a time if they are large.
      this.#count =
        bytes.length > BUFFER_BYTES ? Math.max(1, this.#count >> 1) : Math.min(RECORDS_MAX, this.#count * 2)
    }
  }

  #hasRoom(): boolean {
    return (this.#controller?.desiredSize ?? 0) > 0
  }

  #send(bytes: Uint8Array): void {
    this.#controller?.enqueue(bytes)
  }

  #end(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#options.hub.leave(this)
    this.#options.ended(this)
    this.#wakeUp()
  }

  #wakeUp(): void {
    this.#wake?.()
    this.#wake = undefined
  }

  #woken(): Promise<void> {
    return new Promise(resolve => {
      this.#wake = resolve
    })
  }
}
