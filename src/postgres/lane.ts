import { AnnalsError } from '../core/errors.ts'
import { Connection, type ConnectionSettings } from './connection.ts'

/** One connection. It is opened when it is first needed, and again after it was lost. */
export class Lane {
  readonly #settings: ConnectionSettings
  readonly #closing = new AbortController()
  #connection: Promise<Connection> | undefined
  #current: Connection | undefined

  constructor(settings: ConnectionSettings) {
    this.#settings = settings
  }

  /** The connection if it is open now. */
  get ready(): Connection | undefined {
    return this.#current?.isOpen === true ? this.#current : undefined
  }

  connection(): Promise<Connection> {
    if (this.#closing.signal.aborted) return Promise.reject(closedError())
    if (this.#current !== undefined && !this.#current.isOpen) this.#forget()
    this.#connection ??= this.#open()
    return this.#connection
  }

  async close(): Promise<void> {
    this.#closing.abort()
    const connection = await this.#connection?.catch(() => undefined)
    await connection?.end()
  }

  async #open(): Promise<Connection> {
    try {
      this.#current = await Connection.open(this.#settings, { signal: this.#closing.signal })
      return this.#current
    } catch (error) {
      // The next caller tries again.
      this.#forget()
      throw error
    }
  }

  #forget(): void {
    this.#connection = undefined
    this.#current = undefined
  }
}

export function closedError(): AnnalsError {
  return new AnnalsError('CLOSED', 'the storage is closed')
}
