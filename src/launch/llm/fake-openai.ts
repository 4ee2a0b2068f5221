import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { AnnalsError } from '../../core/errors.ts'
import { type ChatBody, checkChatBody, hashesOf, wantsStream } from './chat-request.ts'
import type { Completion } from './completion.ts'
import { isPlainObject, type JsonObject, parseJsonText } from './json.ts'
import { DONE, sseEvent } from './sse.ts'

/** A failure that `FakeOpenAi` simulates. */
export type LlmFault =
  /** Answers with this status, and with the header `Retry-After` if it is given. */
  | { readonly status: number; readonly retryAfter?: string; readonly message?: string }
  /** Never answers. */
  | 'timeout'
  /** Answers 200 with a body that is not JSON. */
  | 'malformed'
  /** Closes the connection without an answer. */
  | 'disconnect'
  /** Closes a stream in the middle. */
  | 'cut'
  /** Ends a stream in the middle with an error. */
  | 'stream-error'
  /** Answers without token counts. */
  | 'no-usage'

/** Options of `openFakeOpenAi`. */
export interface FakeOpenAiOptions {
  /** The fault for the n-th request, counted from 1. */
  readonly faults?: Readonly<Record<number, LlmFault>> | ((n: number) => LlmFault | undefined)
  /** The text of the answer. By default it is derived from the request. */
  readonly reply?: (body: ChatBody) => string
  /** The accepted key. Others get 401 with the key in the message, as from some providers. */
  readonly apiKey?: string
}

/** A request that `FakeOpenAi` received. */
export interface FakeRequest {
  /** Path and query. */
  readonly path: string
  /** The headers, with lowercase names. */
  readonly headers: Readonly<Record<string, unknown>>
  /** The parsed body; undefined if it is not JSON. */
  readonly body: unknown
  /** The cache key of a chat request. */
  readonly cacheKey?: string
}

/** Starts an endpoint on a free port of this machine. Close it when you are done. */
export async function openFakeOpenAi(options: FakeOpenAiOptions = {}): Promise<FakeOpenAi> {
  const fake = new FakeOpenAi(options)
  await fake.listen()
  return fake
}

/**
 * An OpenAI-compatible endpoint without a model, for tests and examples. Its
 * answer is a function of the request alone. It can fail the n-th request.
 */
export class FakeOpenAi implements AsyncDisposable {
  /** All requests so far. */
  readonly requests: FakeRequest[] = []
  readonly #options: FakeOpenAiOptions
  readonly #server: Server

  /** @internal Use `openFakeOpenAi`. */
  constructor(options: FakeOpenAiOptions) {
    this.#options = options
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => response.destroy(error as Error))
    })
  }

  /** The `baseUrl` for `createLlm`. */
  get baseUrl(): string {
    const { port } = this.#server.address() as AddressInfo
    return `http://127.0.0.1:${port}/v1`
  }

  /** @internal */
  async listen(): Promise<void> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  /** Stops the endpoint and closes its connections. */
  async close(): Promise<void> {
    if (!this.#server.listening) return
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, 'close')
  }

  /** As `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = await textOf(request)
    const value = parseJsonText(text)
    const body = checked(value)
    const key = typeof body === 'string' ? {} : { cacheKey: hashesOf(body).cacheKey }
    this.requests.push({ path: request.url ?? '', headers: request.headers, body: value, ...key })
    const { faults, apiKey } = this.#options
    const n = this.requests.length
    const fault = typeof faults === 'function' ? faults(n) : faults?.[n]
    if (fault === 'timeout') return
    if (fault === 'disconnect') {
      response.destroy()
      return
    }
    if (fault === 'malformed') return send(response, 200, '<html>not what you asked for</html>')
    if (isPlainObject(fault)) return refuse(response, fault)
    const path = request.url?.split('?')[0]
    if (!path?.endsWith('/chat/completions')) return send(response, 200, { object: 'list', data: [] })
    const { authorization } = request.headers
    if (apiKey !== undefined && authorization !== `Bearer ${apiKey}`) {
      return refuse(response, { status: 401, message: `Incorrect API key provided: ${authorization}` })
    }
    if (typeof body === 'string') return refuse(response, { status: 400, message: body })
    const completion = fakeCompletion(body, this.#options.reply, fault !== 'no-usage')
    if (wantsStream(body)) return stream(response, completion, body, fault)
    return send(response, 200, completion)
  }
}

function checked(value: unknown): ChatBody | string {
  try {
    return checkChatBody(value)
  } catch (error) {
    if (error instanceof AnnalsError) return error.message
    throw error
  }
}

/** A pure function of the request. If the last message says `use a tool`, the answer calls the first tool. */
function fakeCompletion(
  body: ChatBody,
  reply: ((body: ChatBody) => string) | undefined,
  countsTokens: boolean,
): Completion {
  const { cacheKey } = hashesOf(body)
  const question = String(body.messages.at(-1)?.['content'] ?? '')
  const tool = question.includes('use a tool') ? nameOfTool(body.tools?.[0]) : undefined
  const content = reply?.(body) ?? `answer ${cacheKey.slice(0, 8)} to: ${question.slice(0, 200)}`
  const call = {
    id: `call_${cacheKey.slice(0, 12)}`,
    type: 'function',
    function: { name: tool, arguments: JSON.stringify({ seed: cacheKey.slice(0, 4) }) },
  }
  const [message, finish_reason] =
    tool === undefined
      ? [{ role: 'assistant', content }, 'stop']
      : [{ role: 'assistant', content: null, tool_calls: [call] }, 'tool_calls']
  const prompt_tokens = JSON.stringify(body.messages).length
  const completion_tokens = tool === undefined ? content.length : 10
  const usage = { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
  return {
    id: `chatcmpl-${cacheKey.slice(0, 24)}`,
    object: 'chat.completion',
    created: 1_750_000_000,
    model: body.model,
    choices: [{ index: 0, message, finish_reason }],
    ...(countsTokens ? { usage } : {}),
  }
}

function nameOfTool(tool: unknown): string | undefined {
  const named = isPlainObject(tool) ? tool['function'] : undefined
  return isPlainObject(named) && typeof named['name'] === 'string' ? named['name'] : undefined
}

function stream(response: ServerResponse, completion: Completion, body: ChatBody, fault?: LlmFault): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  const { choices, usage, ...frame } = completion
  const head = { ...frame, object: 'chat.completion.chunk' }
  const { message, finish_reason: finishReason } = choices[0]
  const pieces = deltasOf(message).map(delta =>
    sseEvent({ ...head, choices: [{ index: 0, delta, finish_reason: null }] }),
  )
  if (fault === 'cut' || fault === 'stream-error') {
    response.write(pieces.slice(0, Math.ceil(pieces.length / 2)).join(''), () => {
      if (fault === 'cut') response.destroy()
      else response.end(sseEvent({ error: { message: 'overloaded', type: 'server_error' } }))
    })
    return
  }
  for (const piece of pieces) response.write(piece)
  response.write(sseEvent({ ...head, choices: [{ index: 0, delta: {}, finish_reason: finishReason }] }))
  const options = body['stream_options']
  if (usage !== undefined && isPlainObject(options) && options['include_usage'] === true) {
    response.write(sseEvent({ ...head, choices: [], usage }))
  }
  response.end(sseEvent(DONE))
}

function deltasOf({ content, tool_calls: calls }: JsonObject): unknown[] {
  if (typeof content === 'string') {
    // Cut after seven UTF-16 units, even inside a surrogate pair, as a tokenizer might.
    const pieces = content.match(/[\s\S]{1,7}/g) ?? []
    return [{ role: 'assistant', content: '' }, ...pieces.map(piece => ({ content: piece }))]
  }
  const [call] = calls as { function: { arguments: string } }[]
  const { arguments: text } = call.function
  const opening = { index: 0, ...call, function: { ...call.function, arguments: '' } }
  const pieces = text.match(/[\s\S]{1,3}/g) ?? []
  return [
    { role: 'assistant', content: null, tool_calls: [opening] },
    ...pieces.map(piece => ({ tool_calls: [{ index: 0, function: { arguments: piece } }] })),
  ]
}

function refuse(
  response: ServerResponse,
  fault: { readonly status: number; readonly retryAfter?: string; readonly message?: string },
): void {
  const { status, retryAfter, message = `told to answer ${status}` } = fault
  if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter)
  send(response, status, { error: { message, type: 'fake', code: status } })
}

function send(response: ServerResponse, status: number, body: unknown): void {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  response.writeHead(status, { 'content-type': 'application/json', 'x-request-id': 'req-fake' })
  response.end(text)
}

async function textOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = []
  for await (const piece of request) pieces.push(piece as Buffer)
  return Buffer.concat(pieces).toString('utf8')
}
