/** How a request fares against the limit; what the headers say. */
export interface Allowance {
  readonly isAllowed: boolean
  readonly limit: number
  readonly remaining: number
  /** Whole seconds, if it is not allowed. */
  readonly retryAfterSeconds: number
}

interface Bucket {
  /** Requests that are still allowed, fractions of them too. */
  left: number
  at: number
}

const MINUTE_MS = 60_000
/** Who asks under more names than this has the oldest forgotten: memory is bounded, whatever comes. */
const NAMES_MAX = 10_000

/** A bucket for each name, that fills within a minute. */
export class RateLimit {
  readonly #perMinute: number
  readonly #clock: () => number
  readonly #buckets = new Map<string, Bucket>()

  constructor(perMinute: number, clock: () => number) {
    this.#perMinute = perMinute
    this.#clock = clock
  }

  take(name: string): Allowance {
    const limit = this.#perMinute
    const bucket = this.#filled(name)
    const isAllowed = bucket.left >= 1
    if (isAllowed) bucket.left--
    const missing = 1 - bucket.left
    return {
      isAllowed,
      limit,
      remaining: Math.floor(bucket.left),
      retryAfterSeconds: isAllowed ? 0 : Math.max(1, Math.ceil((missing * MINUTE_MS) / limit / 1_000)),
    }
  }

  #filled(name: string): Bucket {
    const now = this.#clock()
    const limit = this.#perMinute
    const known = this.#buckets.get(name)
    const bucket = known ?? { left: limit, at: now }
    // A clock that went back gives nothing, and takes nothing away.
    bucket.left = Math.min(limit, bucket.left + (Math.max(0, now - bucket.at) * limit) / MINUTE_MS)
    bucket.at = now
    // The one that asked last goes to the end.
    if (known !== undefined) this.#buckets.delete(name)
    else if (this.#buckets.size >= NAMES_MAX)
      this.#buckets.delete(this.#buckets.keys().next().value as string)
    this.#buckets.set(name, bucket)
    return bucket
  }
}
