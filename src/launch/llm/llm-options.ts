import { AnnalsError } from '../../core/errors.ts'
import { checkOptions } from '../../core/options.ts'
import { checkText } from '../../core/text.ts'
import type { LlmEventSink, LlmTelemetry } from './call-record.ts'
import type { OpenEvidence } from './evidence.ts'
import type { LlmMode } from './exchange.ts'
import { isPlainObject } from './json.ts'
import { checkPrices, type PriceTable } from './prices.ts'
import type { Fetch } from './transport.ts'
import { type LlmRetryOptions, TRIES_MAX } from './tries.ts'

/** Which models are asked, and how. */
export interface LlmEndpoint {
  /** Such as `https://api.openai.com/v1`: any endpoint that speaks the same language. */
  readonly baseUrl: string
  readonly apiKey?: string
  /** More headers for each request of `chat`. */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * `live` calls; `record` answers from what this run recorded, and calls for the rest; `replay` never calls. All keep
   * evidence. Without it `createLlm` is `live`, and a launch is `record`.
   */
  readonly mode?: LlmMode
  /** Go before the list prices. */
  readonly prices?: PriceTable
  readonly fetch?: Fetch
  readonly retry?: LlmRetryOptions
  /** Of one try: until the whole answer is there; of a stream, the longest silence. 120 s without it. */
  readonly timeoutMs?: number
}

export interface LlmOptions extends LlmEndpoint {
  readonly events: LlmEventSink
  /** The run's folder: evidence goes to `evidence/llm` in it. */
  readonly folder: string
  /** @internal Opens the folder of the evidence, if it is not to be a folder of the file system. */
  readonly openEvidence?: OpenEvidence
  /** 32 hex digits, one for the run. */
  readonly traceId: string
  /** Of calls that name no other. */
  readonly parentSpanId?: string
  readonly newSpanId?: () => string
  readonly telemetry?: LlmTelemetry
  /** Milliseconds since 1970. */
  readonly clock?: () => number
}

const ENDPOINT_OPTIONS = ['baseUrl', 'apiKey', 'headers', 'mode', 'prices', 'fetch', 'retry', 'timeoutMs']
const OPTIONS = [
  ...ENDPOINT_OPTIONS,
  ...['events', 'folder', 'openEvidence', 'traceId', 'parentSpanId', 'newSpanId', 'telemetry', 'clock'],
]
const RETRY_OPTIONS = ['tries', 'firstMs', 'maxMs', 'retryAfterMaxMs', 'sleep', 'random']
const MODES: readonly unknown[] = ['live', 'record', 'replay']

export function checkLlmOptions(options: LlmOptions): void {
  checkOptions('createLlm', options, OPTIONS)
  checkEndpoint(options)
  const { events, folder, traceId, parentSpanId } = options
  if (!isPlainObject(events) || typeof events.append !== 'function') refuse('events', 'must have append')
  checkText('folder', folder, { bytesMax: 4_096 })
  if (!/^[0-9a-f]{32}$/.test(traceId)) refuse('traceId', 'must be 32 lowercase hex digits')
  if (parentSpanId !== undefined && !/^[0-9a-f]{16}$/.test(parentSpanId)) {
    refuse('parentSpanId', 'must be 16 lowercase hex digits')
  }
}

/** For who adds the rest: a launch must not be the first to find out in the middle of its work. */
export function checkLlmEndpoint(options: LlmEndpoint): void {
  checkOptions('llm', options, ENDPOINT_OPTIONS)
  checkEndpoint(options)
}

function checkEndpoint({ baseUrl, mode, prices, retry, timeoutMs }: LlmEndpoint): void {
  if (typeof baseUrl !== 'string' || !/^https?:\/\//.test(baseUrl) || !URL.canParse(baseUrl)) {
    // Not shown: it may hold a password.
    refuse('baseUrl', 'must be a URL that starts with http:// or https://')
  }
  const { username, password, search } = new URL(baseUrl)
  if (username !== '' || password !== '')
    refuse('baseUrl', 'must hold no credentials: pass apiKey or headers')
  if (search !== '') refuse('baseUrl', 'must have no query')
  if (mode !== undefined && !MODES.includes(mode)) refuse('mode', 'must be live, record or replay')
  if (prices !== undefined) checkPrices(prices)
  if (retry !== undefined) checkOptions('retry', retry, RETRY_OPTIONS)
  const tries = retry?.tries ?? TRIES_MAX
  if (!Number.isInteger(tries) || tries < 1 || tries > TRIES_MAX)
    refuse('retry.tries', `must be 1 to ${TRIES_MAX}`)
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= 2 ** 31 - 1)) {
    refuse('timeoutMs', 'must be positive milliseconds')
  }
}

function refuse(name: string, why: string): never {
  throw new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, { name })
}
