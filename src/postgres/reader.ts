import type { Entry, Place, Range } from '../engine/storage.ts'
import type { Connection, ConnectionSettings } from './connection.ts'
import { failure, isRefusal } from './failure.ts'
import { Lane } from './lane.ts'
import { type ClockMs, readPoints, readRange } from './reads.ts'

/** The most batches under way. */
const CALLS_MAX = 2
const POINTS_MAX = 1_024

interface WaitingPoints {
  readonly places: readonly Place[]
  readonly resolve: (found: (Entry | undefined)[]) => void
  readonly reject: (error: unknown) => void
}

/**
 * Reads the newest state. Points that are requested in one turn of the event
 * loop, or while two batches are under way, share a statement. A read whose
 * connection is lost is sent again, once.
 */
export class BatchedReader {
  readonly #lane: Lane
  readonly #clockMs: () => ClockMs
  readonly #queue: WaitingPoints[] = []
  #calls = 0
  #isScheduled = false

  constructor(settings: ConnectionSettings, clockMs: () => ClockMs) {
    this.#lane = new Lane(settings)
    this.#clockMs = clockMs
  }

  /** Reads all places as of one moment. */
  points(places: readonly Place[]): Promise<(Entry | undefined)[]> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ places, resolve, reject })
      this.#schedule()
    })
  }

  range(range: Range): Promise<readonly Entry[]> {
    return this.run(connection => readRange(connection, range, this.#clockMs()))
  }

  /** Runs any statement that may be sent twice. */
  async run<T>(read: (connection: Connection) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      const connection = await this.#lane.connection()
      try {
        return await read(connection)
      } catch (error) {
        if (!isRefusal(error)) connection.destroy()
        if (isRefusal(error) || attempt === 2) throw failure(error)
      }
    }
  }

  close(): Promise<void> {
    return this.#lane.close()
  }

  #schedule(): void {
    if (this.#isScheduled || this.#queue.length === 0 || this.#calls >= CALLS_MAX) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      void this.#sendNext()
    })
  }

  async #sendNext(): Promise<void> {
    const sent: WaitingPoints[] = []
    let points = 0
    while (this.#queue.length > 0 && points < POINTS_MAX) {
      const next = this.#queue.shift()!
      points += next.places.length
      sent.push(next)
    }
    this.#calls++
    this.#schedule()
    try {
      const places = sent.flatMap(waiting => waiting.places)
      const found = await this.run(connection => readPoints(connection, places, this.#clockMs()))
      let at = 0
      for (const { places, resolve } of sent) {
        resolve(found.slice(at, at + places.length))
        at += places.length
      }
    } catch (error) {
      for (const { reject } of sent) reject(error)
    } finally {
      this.#calls--
      this.#schedule()
    }
  }
}
