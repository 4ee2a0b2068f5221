import { invalidArgument } from '../../core/errors.ts'
import { checkOptions } from '../../core/options.ts'
import { checkText } from '../../core/text.ts'
import type { LlmEventSink, LlmTelemetry } from './call-record.ts'
import type { OpenEvidence } from './evidence.ts'
import type { LlmMode } from './exchange.ts'
import { isPlainObject } from './json.ts'
import { checkPrices, type PriceTable } from './prices.ts'
import type { Fetch } from './transport.ts'
import { type LlmRetryOptions, TRIES_MAX } from './tries.ts'

/** An OpenAI-compatible endpoint, and how it is called. */
export interface LlmEndpoint {
  /** The address, such as `https://api.openai.com/v1`. */
  readonly baseUrl: string
  /** The key of the endpoint. It is redacted from everything that is written. */
  readonly apiKey?: string
  /** More headers for the requests of `chat`. */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * `live` always calls the endpoint. `record` uses the recorded answers of the run, and calls for the rest. `replay` never
   * calls. The default is `live` for `createLlm` and `record` for a launch.
   */
  readonly mode?: LlmMode
  /** Prices of models. They go before the default prices. */
  readonly prices?: PriceTable
  /** Sends requests; `globalThis.fetch` by default. */
  readonly fetch?: Fetch
  /** How failed requests are retried. */
  readonly retry?: LlmRetryOptions
  /** The time for one try: until the answer is complete, or between two pieces of a stream. 120,000 by default. */
  readonly timeoutMs?: number
}

/** Options of `createLlm`. */
export interface LlmOptions extends LlmEndpoint {
  /** Takes the events about calls. */
  readonly events: LlmEventSink
  /** The run's folder. Evidence is written to its folder `evidence/llm`. */
  readonly folder: string
  /** @internal Opens the folder of the evidence on another disk. */
  readonly openEvidence?: OpenEvidence
  /** The trace of the run: 32 hex digits. */
  readonly traceId: string
  /** The parent span of calls that name no other. */
  readonly parentSpanId?: string
  /** Returns new span ids; random ones by default. */
  readonly newSpanId?: () => string
  /** Gets the start and the end of each call. */
  readonly telemetry?: LlmTelemetry
  /** The time in milliseconds since 1970; `Date.now` by default. */
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
  if (!isPlainObject(events) || typeof events.append !== 'function')
    throw invalidArgument('events', 'must have append')
  checkText('folder', folder, { bytesMax: 4_096 })
  if (!/^[0-9a-f]{32}$/.test(traceId)) throw invalidArgument('traceId', 'must be 32 lowercase hex digits')
  if (parentSpanId !== undefined && !/^[0-9a-f]{16}$/.test(parentSpanId)) {
    throw invalidArgument('parentSpanId', 'must be 16 lowercase hex digits')
  }
}

/** Checks the option `llm` of a launch, before the run starts. */
export function checkLlmEndpoint(options: LlmEndpoint): void {
  checkOptions('llm', options, ENDPOINT_OPTIONS)
  checkEndpoint(options)
}

function checkEndpoint({ baseUrl, mode, prices, retry, timeoutMs }: LlmEndpoint): void {
  if (typeof baseUrl !== 'string' || !/^https?:\/\//.test(baseUrl) || !URL.canParse(baseUrl)) {
    // The value is not in the error, because it may contain a password.
    throw invalidArgument('baseUrl', 'must be a URL that starts with http:// or https://')
  }
  const { username, password, search } = new URL(baseUrl)
  if (username !== '' || password !== '')
    throw invalidArgument('baseUrl', 'must not contain credentials: pass apiKey or headers')
  if (search !== '') throw invalidArgument('baseUrl', 'must not have a query')
  if (mode !== undefined && !MODES.includes(mode))
    throw invalidArgument('mode', 'must be live, record or replay')
  if (prices !== undefined) checkPrices(prices)
  if (retry !== undefined) checkOptions('retry', retry, RETRY_OPTIONS)
  const tries = retry?.tries ?? TRIES_MAX
  if (!Number.isInteger(tries) || tries < 1 || tries > TRIES_MAX)
    throw invalidArgument('retry.tries', `must be 1 to ${TRIES_MAX}`)
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= 2 ** 31 - 1)) {
    throw invalidArgument('timeoutMs', 'must be a positive number of milliseconds')
  }
}
