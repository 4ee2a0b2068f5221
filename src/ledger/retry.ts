import { AnnalsError, type ErrorCode } from '../core/errors.ts'

export interface RetryOptions {
  /** How often at most; 8 without it. */
  readonly retries?: number
  /** Before the first one; doubles each time. 20 ms without it. */
  readonly firstMs?: number
  readonly maxMs?: number
  readonly sleep?: (ms: number) => Promise<void>
  readonly random?: () => number
  /** What may pass by itself. */
  readonly isTransient?: (error: unknown) => boolean
}

/** An append is idempotent: one whose outcome is unknown is simply sent again. */
const TRANSIENT_CODES: readonly ErrorCode[] = ['CONFLICT', 'TIMEOUT', 'OUTCOME_UNKNOWN', 'IO_ERROR']
const TRANSIENT_SYSTEM_CODES: readonly string[] = [
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  'ETIMEDOUT',
  'EAI_AGAIN',
  'UND_ERR_SOCKET',
  'UND_ERR_CONNECT_TIMEOUT',
]

function isTransient(error: unknown): boolean {
  if (error instanceof AnnalsError) return TRANSIENT_CODES.includes(error.code)
  if (!(error instanceof Error)) return false
  const { code, cause } = error as { code?: unknown; cause?: unknown }
  return (typeof code === 'string' && TRANSIENT_SYSTEM_CODES.includes(code)) || isTransient(cause)
}

/** Tries again, with back-off, while the failure may pass; then throws it. */
export async function retried<T>(work: () => Promise<T>, options: RetryOptions = {}): Promise<T> {
  const { retries = 8, firstMs = 20, maxMs = 5_000, random = Math.random } = options
  const { sleep = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms)) } = options
  const mayPass = options.isTransient ?? isTransient
  for (let attempt = 0; ; attempt++) {
    try {
      return await work()
    } catch (error) {
      if (attempt >= retries || !mayPass(error)) throw error
      // Anywhere in the upper half: many who failed together shall not come back together.
      await sleep(Math.min(maxMs, firstMs * 2 ** attempt) * (0.5 + random() / 2))
    }
  }
}
