import { AnnalsError } from '../core/errors.ts'

export interface FairShareOptions {
  /** What is shared, for messages, such as `heavy requests`. */
  readonly of: string
  readonly total: number
  /** The most that one tenant may hold; at most `total`. */
  readonly perTenant: number
  /** How long a request waits for its share before it is refused. */
  readonly waitMs: number
}

interface Waiter {
  readonly amount: number
  readonly grant: () => void
}

/** The most waiting requests of one tenant. Further ones are refused at once. */
const WAITING_MAX = 100
/** The `Retry-After` of a refused request. */
const RETRY_AFTER_SECONDS = 2

/**
 * Shares a limited amount, of slots or bytes, among tenants. A request that does not fit waits in the queue of its tenant. The
 * queues take turns, so a tenant with a thousand requests delays another tenant by one turn. No queue overtakes the one whose
 * turn it is, so a large request is not starved by small ones.
 */
export class FairShare {
  readonly #options: FairShareOptions
  #held = 0
  readonly #heldBy = new Map<string, number>()
  /** The queues by tenant, in the order of their turns. */
  readonly #lines = new Map<string, Waiter[]>()
  #refused = 0

  constructor(options: FairShareOptions) {
    this.#options = options
  }

  get held(): number {
    return this.#held
  }

  get waiting(): number {
    let count = 0
    for (const line of this.#lines.values()) count += line.length
    return count
  }

  /** The number of refused requests since the start. */
  get refused(): number {
    return this.#refused
  }

  /** Waits for the caller's turn and resolves with a function that releases the share. `RATE_LIMITED` if it takes too long. */
  take(
    tenant: string,
    amount: number,
    signal: AbortSignal,
    waitMs: number = this.#options.waitMs,
  ): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const line = this.#lines.get(tenant) ?? []
      const isPatient = waitMs === Number.POSITIVE_INFINITY
      if (line.length >= WAITING_MAX && !isPatient) return reject(this.#tooMany())
      const leave = (error: AnnalsError): void => {
        settle()
        line.splice(line.indexOf(waiter), 1)
        if (line.length === 0) this.#lines.delete(tenant)
        reject(error)
        this.#serve()
      }
      const late = isPatient ? undefined : setTimeout(() => leave(this.#tooMany()), waitMs)
      const gone = (): void => leave(callerIsGone())
      const settle = (): void => {
        clearTimeout(late)
        signal.removeEventListener('abort', gone)
      }
      const waiter: Waiter = {
        // A request for more than the maximum waits for the maximum.
        amount: Math.min(amount, this.#options.perTenant),
        grant: () => {
          settle()
          resolve(this.#granted(tenant, waiter.amount))
        },
      }
      line.push(waiter)
      this.#lines.set(tenant, line)
      signal.addEventListener('abort', gone)
      if (signal.aborted) gone()
      else this.#serve()
    })
  }

  #granted(tenant: string, amount: number): () => void {
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#held -= amount
      const left = (this.#heldBy.get(tenant) ?? 0) - amount
      if (left > 0) this.#heldBy.set(tenant, left)
      else this.#heldBy.delete(tenant)
      this.#serve()
    }
  }

  #serve(): void {
    while (this.#serveOne());
  }

  /** Serves the first queue and moves it behind the others. */
  #serveOne(): boolean {
    const { total, perTenant } = this.#options
    for (const [tenant, line] of this.#lines) {
      const [{ amount, grant }] = line
      const heldBy = this.#heldBy.get(tenant) ?? 0
      if (heldBy + amount > perTenant) continue
      if (this.#held + amount > total) return false
      line.shift()
      this.#lines.delete(tenant)
      if (line.length > 0) this.#lines.set(tenant, line)
      this.#held += amount
      this.#heldBy.set(tenant, heldBy + amount)
      grant()
      return true
    }
    return false
  }

  #tooMany(): AnnalsError {
    this.#refused++
    const message = `too many ${this.#options.of} at a time; try again later`
    return new AnnalsError('RATE_LIMITED', message, { retryAfterSeconds: RETRY_AFTER_SECONDS })
  }
}

/** Stops the work for a caller that has closed its connection. It is never sent. */
export function callerIsGone(): AnnalsError {
  return new AnnalsError('UNAVAILABLE', 'the caller has closed the connection')
}
