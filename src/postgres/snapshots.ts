import { AnnalsError } from '../core/errors.ts'
import { checkPlace, checkRange } from '../engine/operations.ts'
import type { Snapshot } from '../engine/storage.ts'
import { Connection, type ConnectionSettings } from './connection.ts'
import { failure } from './failure.ts'
import { closedError } from './lane.ts'
import { readPoints, readRange } from './reads.ts'
import { STATEMENTS } from './statements.ts'

interface Waiting {
  readonly resolve: (snapshot: Snapshot) => void
  readonly reject: (error: unknown) => void
  readonly timer: NodeJS.Timeout
}

/** A transaction on the server. All snapshots that were requested before it began share it. */
interface Held {
  readonly connection: Connection
  readonly version: number
  readonly time: number
  readonly clock: number
  holders: number
}

/**
 * Snapshots are REPEATABLE READ transactions, each on its own connection until
 * it is released. Requests that arrive before a transaction begins share it: it
 * begins after them, so it sees every commit that was answered before.
 */
export class Snapshots {
  readonly #settings: ConnectionSettings
  readonly #max: number
  readonly #givenMs: () => number | undefined
  readonly #note: (time: number) => void
  readonly #free: Connection[] = []
  readonly #held = new Set<Held>()
  readonly #queue: Waiting[] = []
  #isScheduled = false
  /** The number of transactions that are about to begin. */
  #opening = 0
  #closed = false

  constructor(
    settings: ConnectionSettings,
    options: {
      readonly max: number
      readonly givenMs: () => number | undefined
      readonly note: (time: number) => void
    },
  ) {
    this.#settings = settings
    this.#max = options.max
    this.#givenMs = options.givenMs
    this.#note = options.note
  }

  take(): Promise<Snapshot> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#queue.splice(this.#queue.indexOf(waiting), 1)
        const message = `all ${this.#max} connections for snapshots are in use: end transactions, or raise snapshotConnections`
        reject(new AnnalsError('TIMEOUT', message, { timeoutMs: this.#settings.timeoutMs }))
      }, this.#settings.timeoutMs)
      const waiting = { resolve, reject, timer }
      this.#queue.push(waiting)
      this.#schedule()
    })
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const { reject, timer } of this.#queue.splice(0)) {
      clearTimeout(timer)
      reject(closedError())
    }
    for (const { connection } of this.#held) connection.destroy()
    this.#held.clear()
    await Promise.all(this.#free.splice(0).map(connection => connection.end()))
  }

  #schedule(): void {
    if (this.#isScheduled || this.#queue.length === 0) return
    if (this.#held.size + this.#opening >= this.#max) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      void this.#begin()
    })
  }

  async #begin(): Promise<void> {
    const sharers = this.#queue.splice(0)
    if (sharers.length === 0) return
    for (const { timer } of sharers) clearTimeout(timer)
    this.#opening++
    try {
      const held = await this.#open(sharers.length)
      for (const { resolve } of sharers) resolve(this.#snapshot(held))
    } catch (error) {
      for (const { reject } of sharers) reject(failure(error))
    } finally {
      this.#opening--
      this.#schedule()
    }
  }

  /** Begins a transaction on an idle connection. If that one was lost meanwhile, it tries the next, and at last a new one. */
  async #open(holders: number): Promise<Held> {
    for (;;) {
      const free = this.#free.pop()
      const connection = free ?? (await Connection.open(this.#settings))
      try {
        const [, [row]] = await Promise.all([
          connection.execute('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY'),
          connection.run(STATEMENTS.snapshot, [this.#givenMs()]),
        ])
        const time = row['at_ms'] as number
        this.#note(time)
        const [version, clock] = [row['version'] as number, row['clock_ms'] as number]
        const held: Held = { connection, version, time, clock, holders }
        if (this.#closed) throw closedError()
        this.#held.add(held)
        return held
      } catch (error) {
        connection.destroy()
        if (free === undefined || this.#closed) throw error
      }
    }
  }

  #snapshot(held: Held): Snapshot {
    const { connection, version, time, clock } = held
    let isReleased = false
    const read = async <T>(work: () => Promise<T>): Promise<T> => {
      if (this.#closed) throw closedError()
      if (isReleased) throw new AnnalsError('INVALID_OPERATION', 'the snapshot has been released')
      try {
        return await work()
      } catch (error) {
        throw this.#closed ? closedError() : failure(error)
      }
    }
    return {
      version,
      time,
      clock,
      get: (scope, tag, key) =>
        read(async () => {
          const place = { scope, tag, key }
          checkPlace(place)
          return (await readPoints(connection, [place], clock))[0]
        }),
      scan: range =>
        read(() => {
          checkRange(range)
          return readRange(connection, range, clock)
        }),
      release: () => {
        if (isReleased) return
        isReleased = true
        this.#release(held)
      },
    }
  }

  #release(held: Held): void {
    held.holders--
    if (held.holders > 0 || !this.#held.delete(held)) return
    const { connection } = held
    // Reads under way were sent before and are answered before it.
    connection.execute('COMMIT').then(
      () => {
        if (this.#closed) void connection.end()
        else this.#free.push(connection)
        this.#schedule()
      },
      () => {
        connection.destroy()
        this.#schedule()
      },
    )
  }
}
