import { AnnalsError } from '../core/errors.ts'

export interface FairShareOptions {
  /** What is shared, for messages: `heavy requests`. */
  readonly of: string
  readonly total: number
  /** How much of it one tenant may have at a time; at most `total`. */
  readonly perTenant: number
  /** How long a request waits for its share before it is refused. */
  readonly waitMs: number
}

interface Waiter {
  readonly amount: number
  readonly grant: () => void
}

/** Requests of one tenant that may wait. More of them are refused at once. */
const WAITING_MAX = 100
/** A caller that was refused is told to come back after so long. */
const RETRY_AFTER_SECONDS = 2

/**
 * Shares a limited amount (of slots, of bytes) among tenants. A request that does not fit waits in the line of its tenant, and
 * the lines take turns, so a tenant with a thousand requests delays another tenant's one by a turn. Nobody overtakes the line
 * whose turn it is: a large request that waits for room gets it.
 */
export class FairShare {
  readonly #options: FairShareOptions
  #held = 0
  readonly #heldBy = new Map<string, number>()
  /** By tenant, in the order of their turns. */
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

  /** How many were refused since the beginning. */
  get refused(): number {
    return this.#refused
  }

  /** Resolves with the function that gives the share back, once it is the caller's turn. `RATE_LIMITED` if that takes too long. */
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
        // What is more than there is at all gets all of it.
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

  /** Serves the line whose turn it is, which then goes behind the others. */
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
    const message = `too many ${this.#options.of} at a time: wait for the others to end`
    return new AnnalsError('RATE_LIMITED', message, { retryAfterSeconds: RETRY_AFTER_SECONDS })
  }
}

/** What stops the work for a caller that has closed its connection. Nobody hears it. */
export function callerIsGone(): AnnalsError {
  return new AnnalsError('UNAVAILABLE', 'the caller has closed the connection')
}
