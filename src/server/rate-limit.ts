/** The result of the rate limit for a request, for the response headers. */
export interface Allowance {
  readonly isAllowed: boolean
  readonly limit: number
  readonly remaining: number
  /** Whole seconds until the next allowed request; 0 if this one is allowed. */
  readonly retryAfterSeconds: number
}

interface Bucket {
  /** The requests that are left, including fractions. */
  left: number
  at: number
}

const MINUTE_MS = 60_000
/** The most buckets in memory. With more callers, the oldest bucket is dropped. */
const NAMES_MAX = 10_000

/** A token bucket for each caller, which refills within a minute. */
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
    // A clock that was set back changes nothing.
    bucket.left = Math.min(limit, bucket.left + (Math.max(0, now - bucket.at) * limit) / MINUTE_MS)
    bucket.at = now
    // Moves the bucket to the end, as the most recently used.
    if (known !== undefined) this.#buckets.delete(name)
    else if (this.#buckets.size >= NAMES_MAX)
      this.#buckets.delete(this.#buckets.keys().next().value as string)
    this.#buckets.set(name, bucket)
    return bucket
  }
}
