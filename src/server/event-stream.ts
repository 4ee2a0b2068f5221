import type { EventHub, HubItem, HubListener, Position } from './event-hub.ts'
import { problemOf } from './problem.ts'
import type { Credential } from './server-env.ts'

/** What of the database a stream reads, behind a position. */
export type ReadBehind = (after: Position, limit: number) => Promise<readonly HubItem[]>

export interface StreamOptions {
  readonly hub: EventHub
  readonly read: ReadBehind
  /** The last one that the reader has. */
  readonly position: Position
  readonly credential: Credential
  readonly requestId: string
  /** How long a reader that takes nothing is waited for. */
  readonly stallMs: number
  readonly heartbeatMs: number
  readonly ended: (stream: EventStream) => void
  /** Cuts the connection; undefined where there is none. */
  readonly cut: (() => void) | undefined
}

const ENCODER = new TextEncoder()
/** How much waits for a reader, besides the chunk that did not fit any more. */
const BUFFER_BYTES = 64 * 1024
const RECORDS_FIRST = 8
const RECORDS_MAX = 256
/** A comment: who reads it ignores it, and knows that the connection stands. */
const HEARTBEAT = ENCODER.encode(':\n\n')
const HELLO = ENCODER.encode('retry: 1000\n\n')

/**
 * Server-sent events for one reader: reading → live → (reading → live)* → ended. Reading, it takes from the database what
 * the reader lacks, as fast as the reader takes it. Live, it passes on what the hub hands it; if that does not
 * follow on what it had, or the reader is not ready for it, it goes back to reading. So nothing is kept for a
 * slow reader, who holds up nobody; one that takes nothing for too long is cut off.
 */
export class EventStream implements HubListener {
  readonly body: ReadableStream<Uint8Array>
  readonly credential: Credential
  readonly #options: StreamOptions
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined
  #position: Position
  /** The newest that the hub has spoken of. */
  #heard: Position
  #isLive = false
  #hasEnded = false
  #count = RECORDS_FIRST
  #fullSince: number | undefined
  #lastSentAt = 0
  /** Who waits for something to change: room in the buffer, or being behind. */
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

  /** Ends it, with a last event that says why, if there is something to say. */
  end(error?: unknown): void {
    if (this.#hasEnded) return
    const controller = this.#controller as ReadableStreamDefaultController<Uint8Array>
    if (!this.#hasRoom()) {
      const { cut } = this.#options
      // Nobody would read the end of it either.
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

  /** Called now and then. Answers whether the reader has stalled, and was cut off. */
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
        // Again, as something may have come before the hub knew of us.
        await this.#catchUp()
        if (this.#heard > this.#position) continue
        this.#isLive = true
        while (this.#isLive && !this.#hasEnded) await this.#woken()
      }
    } catch (error) {
      this.end(error)
    }
  }

  /** Reads until there is nothing more. */
  async #catchUp(): Promise<void> {
    for (;;) {
      while (!this.#hasRoom() && !this.#hasEnded) await this.#woken()
      if (this.#hasEnded) return
      const items = await this.#options.read(this.#position, this.#count)
      if (items.length === 0 || this.#hasEnded) return
      const bytes = ENCODER.encode(items.map(({ text }) => text).join(''))
      this.#send(bytes)
      this.#position = items[items.length - 1].position
      // Large records in small numbers, small ones in large.
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
