import { AnnalsError } from '../../core/errors.ts'
import { CallRecord, type CallStart, type Outcome, type Recording } from './call-record.ts'
import { wantsStream } from './chat-request.ts'
import { ChunkAssembler, streamOf } from './chunks.ts'
import { type Completion, readCompletion } from './completion.ts'
import type { AnsweredEvidence } from './evidence.ts'
import { clip, type Failure, type RawAnswer } from './failure.ts'
import { nearestRequest } from './nearest-request.ts'
import { SseParser } from './sse.ts'
import { type Fetch, type IncomingStream, type Received, sendOnce } from './transport.ts'
import { type LlmRetryOptions, type TriesResult, withTries } from './tries.ts'

/** Whether calls are sent, answered from the record, or both. */
export type LlmMode = 'live' | 'record' | 'replay'

export interface ExchangeOptions {
  readonly mode: LlmMode
  readonly fetch: Fetch
  readonly retry: LlmRetryOptions
  readonly timeoutMs: number
}

export interface Asked extends CallStart {
  readonly signal: AbortSignal | undefined
}

/** A call that has been answered, at least with the beginning of a stream. */
export interface Exchange {
  /** The response for a caller of `fetch`; undefined if the call failed without one. */
  readonly response: Response | undefined
  /** How the call ended. For a stream it resolves at its end. */
  readonly outcome: Promise<Outcome>
}

/**
 * Makes recorded calls: claim an id, keep the request, append STARTED, answer
 * from the record or send (with retries), keep the answer, append FINISHED or
 * FAILED. The end event is in the log before the outcome resolves and before
 * the last byte of the response.
 */
export class Exchanges {
  readonly #recording: Recording
  readonly #options: ExchangeOptions
  /** How often each request was made. The second one gets the second recorded answer. */
  readonly #asked = new Map<string, number>()

  constructor(recording: Recording, options: ExchangeOptions) {
    this.#recording = recording
    this.#options = options
  }

  async make(asked: Asked): Promise<Exchange> {
    const record = await CallRecord.start(this.#recording, asked)
    const recorded = await this.#find(record)
    if (recorded !== undefined) return this.#giveAgain(record, recorded, asked)
    if (this.#options.mode === 'replay') return settled(await record.fail(await this.#miss(record), 0, []))
    if (asked.signal?.aborted) {
      return settled(
        await record.fail(
          { errorClass: 'ABORTED', summary: 'the call was cancelled', retryable: false },
          0,
          [],
        ),
      )
    }
    return this.#send(record, asked)
  }

  async #find(record: CallRecord): Promise<AnsweredEvidence | undefined> {
    const { cacheKey } = record.hashes
    const n = (this.#asked.get(cacheKey) ?? 0) + 1
    this.#asked.set(cacheKey, n)
    return this.#options.mode === 'live' ? undefined : this.#recording.store.find(cacheKey, n)
  }

  async #giveAgain(record: CallRecord, recorded: AnsweredEvidence, asked: Asked): Promise<Exchange> {
    const { body, status } = recorded.answer
    const isStream = wantsStream(asked.body)
    const headers = { 'content-type': isStream ? 'text/event-stream' : 'application/json' }
    const outcome = await record.finishFrom(recorded)
    const text = isStream ? streamOf(body) : JSON.stringify(body)
    return settled(outcome, new Response(text, { status, headers }))
  }

  async #send(record: CallRecord, asked: Asked): Promise<Exchange> {
    const { fetch, timeoutMs, retry } = this.#options
    const { redactor, signal } = asked
    const { clock } = this.#recording
    const once = () => sendOnce(asked.sending, { fetch, timeoutMs, clock, redactor, signal })
    const result = await withTries(once, retry, signal)
    const { tried, attempts, failed } = result
    if (!tried.ok) {
      const { answer } = tried.failure
      const outcome = await record.fail(tried.failure, attempts, failed)
      return settled(outcome, answer && responseOf(answer, answer.text, { 'x-should-retry': 'false' }))
    }
    const received = tried.value
    if (received.kind === 'stream') return relay(record, received.stream, received.answer, result, asked)
    const { answer, completion } = received
    const outcome = await record.finish(completion, { answer, streamed: false, attempts, failed })
    return settled(outcome, responseOf(answer, answer.text))
  }

  async #miss(record: CallRecord): Promise<Failure> {
    const found = nearestRequest(
      await this.#recording.store.newest(NEAREST_AMONG),
      evidence => evidence.request.body,
      record.request,
    )
    const words = found?.difference.words ?? []
    const more = words.length > WORDS_MAX ? ` … and ${words.length - WORDS_MAX} more` : ''
    const summary =
      found === undefined
        ? 'replay: this run has no recorded answers'
        : `replay: this request was not recorded. The nearest is of call ${found.item.call_id}: ` +
          `${words.slice(0, WORDS_MAX).join('; ') || 'only redacted secrets differ'}${more}`
    const error = new AnnalsError('LLM_REPLAY_MISS', summary, {
      callId: record.callId,
      cacheKey: record.hashes.cacheKey,
      retryable: false,
      ...(found === undefined ? {} : { nearest: found.item.call_id, differences: words.slice(0, 20) }),
    })
    return { errorClass: 'REPLAY_MISS', summary: clip(summary), retryable: false, error }
  }
}

/** Comparing with more requests would take too long. */
const NEAREST_AMONG = 500
const WORDS_MAX = 5

function settled(outcome: Outcome, response?: Response): Exchange {
  return { response, outcome: Promise.resolve(outcome) }
}

/** Headers about the transfer of the body, which is decoded now. */
const TRANSFER_HEADERS: readonly string[] = [
  'content-encoding',
  'content-length',
  'transfer-encoding',
  'connection',
]

function responseOf(
  answer: RawAnswer,
  body: string | ReadableStream<Uint8Array>,
  more: Readonly<Record<string, string>> = {},
): Response {
  const headers = new Headers()
  for (const [name, value] of answer.headers)
    if (!TRANSFER_HEADERS.includes(name)) headers.append(name, value)
  for (const [name, value] of Object.entries(more)) headers.set(name, value)
  return new Response(body, { status: answer.status, headers })
}

/**
 * Passes a stream on, piece by piece, and reads it itself, even if nobody takes the pieces: the call must end. The last
 * pieces are held back until the end is recorded.
 */
function relay(
  record: CallRecord,
  incoming: IncomingStream,
  answer: RawAnswer,
  { attempts, failed }: TriesResult<Received>,
  { redactor }: Asked,
): Exchange {
  let cancelled = false
  let onward: ReadableStreamDefaultController<Uint8Array> | undefined
  const body = new ReadableStream<Uint8Array>({
    start: controller => {
      onward = controller
    },
    cancel: () => {
      cancelled = true
      incoming.close()
    },
  })
  const end = async (): Promise<Outcome> => {
    const { result, held } = await readStream(incoming, piece => cancelled || onward?.enqueue(piece))
    incoming.close()
    if ('choices' in result) {
      const outcome = await record.finish(result, { answer, streamed: true, attempts, failed })
      if (!cancelled) {
        for (const piece of held) onward?.enqueue(piece)
        onward?.close()
      }
      return outcome
    }
    const failure: Failure = cancelled
      ? { errorClass: 'ABORTED', summary: 'the reader cancelled the stream', retryable: false }
      : { ...result, summary: clip(redactor.text(result.summary)) }
    const outcome = await record.fail(failure, attempts, failed)
    if (!cancelled) onward?.error(new Error(failure.summary))
    return outcome
  }
  const outcome = end().catch((error: unknown) => {
    if (!cancelled) onward?.error(error)
    throw error
  })
  return { response: responseOf(answer, body), outcome }
}

async function readStream(
  incoming: IncomingStream,
  handOn: (piece: Uint8Array) => unknown,
): Promise<{ result: Completion | Failure; held: Uint8Array[] }> {
  const parser = new SseParser()
  const assembler = new ChunkAssembler()
  const held: Uint8Array[] = []
  try {
    while (!assembler.isDone && assembler.error === undefined) {
      const piece = await incoming.read()
      for (const data of piece === undefined ? parser.end() : parser.push(piece)) assembler.push(data)
      if (piece === undefined) break
      if (assembler.isDone) held.push(piece)
      else handOn(piece)
    }
  } catch (error) {
    return { result: incoming.failureOf(error), held }
  }
  return { result: endOf(assembler), held }
}

function endOf(assembler: ChunkAssembler): Completion | Failure {
  if (assembler.error !== undefined) {
    return { errorClass: 'STREAM_ERROR', summary: assembler.error, retryable: true }
  }
  if (!assembler.isComplete) {
    return {
      errorClass: 'NETWORK',
      summary: 'the stream ended before the answer was complete',
      retryable: true,
    }
  }
  const completion = readCompletion(assembler.completion())
  if (typeof completion !== 'string') return completion
  return { errorClass: 'MALFORMED_ANSWER', summary: completion, retryable: false }
}
