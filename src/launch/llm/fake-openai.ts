import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { AnnalsError } from '../../core/errors.ts'
import { type ChatBody, checkChatBody, hashesOf, wantsStream } from './chat-request.ts'
import { isPlainObject, parseJsonText } from './json.ts'
import { DONE, sseEvent } from './sse.ts'

/**
 * An endpoint that speaks OpenAI's language and knows no model: its answer is
 * a function of the request alone, so that tests and examples cost nothing and
 * give the same every time. It can be told to fail for the n-th request.
 */

export type LlmFault =
  /** Answers with this status, and `Retry-After` if it is given, in seconds. */
  | { readonly status: number; readonly retryAfter?: string; readonly message?: string }
  /** Never answers. */
  | 'timeout'
  /** 200, and a body that is no JSON. */
  | 'malformed'
  /** Hangs up without an answer. */
  | 'disconnect'
  /** Of a stream: hangs up in the middle. */
  | 'cut'
  /** Of a stream: an error instead of the rest. */
  | 'stream-error'
  /** Does not count tokens. */
  | 'no-usage'

export interface FakeOpenAiOptions {
  /** What happens to the n-th request, from 1. */
  readonly faults?: Readonly<Record<number, LlmFault>> | ((n: number) => LlmFault | undefined)
  /** What it says; a text that follows from the request without it. */
  readonly reply?: (body: ChatBody) => string
  /** Other keys are answered 401, with the key in the message, as some providers do. */
  readonly apiKey?: string
}

export interface FakeRequest {
  readonly path: string
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: unknown
  /** Of a request for a chat completion: what a recorded answer to it is found by. */
  readonly cacheKey?: string
}

export async function openFakeOpenAi(options: FakeOpenAiOptions = {}): Promise<FakeOpenAi> {
  const fake = new FakeOpenAi(options)
  await fake.listen()
  return fake
}

export class FakeOpenAi implements AsyncDisposable {
  /** All that arrived. */
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

  /** For `createLlm`. */
  get baseUrl(): string {
    const { port } = this.#server.address() as AddressInfo
    return `http://127.0.0.1:${port}/v1`
  }

  /** @internal */
  async listen(): Promise<void> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, 'close')
  }

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

interface FakeCompletion {
  readonly id: string
  readonly object: string
  readonly created: number
  readonly model: string
  readonly choices: readonly {
    readonly index: number
    readonly message: {
      readonly role: string
      readonly content: string | null
      readonly tool_calls?: unknown[]
    }
    readonly finish_reason: string
  }[]
  readonly usage?: unknown
}

/** A pure function of the request. Asked for with tools and told to `use a tool`, it calls the first one. */
function fakeCompletion(
  body: ChatBody,
  reply?: (body: ChatBody) => string,
  countsTokens = true,
): FakeCompletion {
  const { cacheKey } = hashesOf(body)
  const question = String(body.messages.at(-1)?.['content'] ?? '')
  const tool = question.includes('use a tool') ? nameOfTool(body.tools?.[0]) : undefined
  const content = reply?.(body) ?? `answer ${cacheKey.slice(0, 8)} to: ${question.slice(0, 200)}`
  const call = {
    id: `call_${cacheKey.slice(0, 12)}`,
    type: 'function',
    function: { name: tool, arguments: JSON.stringify({ seed: cacheKey.slice(0, 4) }) },
  }
  const promptTokens = JSON.stringify(body.messages).length
  const completionTokens = tool === undefined ? content.length : 10
  return {
    id: `chatcmpl-${cacheKey.slice(0, 24)}`,
    object: 'chat.completion',
    created: 1_750_000_000,
    model: body.model,
    choices: [
      {
        index: 0,
        message:
          tool === undefined
            ? { role: 'assistant', content }
            : { role: 'assistant', content: null, tool_calls: [call] },
        finish_reason: tool === undefined ? 'stop' : 'tool_calls',
      },
    ],
    ...(countsTokens
      ? {
          usage: {
            prompt_tokens: promptTokens,
            completion_tokens: completionTokens,
            total_tokens: promptTokens + completionTokens,
          },
        }
      : {}),
  }
}

function nameOfTool(tool: unknown): string | undefined {
  const named = isPlainObject(tool) ? tool['function'] : undefined
  return isPlainObject(named) && typeof named['name'] === 'string' ? named['name'] : undefined
}

function stream(
  response: ServerResponse,
  completion: FakeCompletion,
  body: ChatBody,
  fault?: LlmFault,
): void {
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

function deltasOf(message: FakeCompletion['choices'][number]['message']): unknown[] {
  const { content, tool_calls: calls } = message
  if (content !== null) {
    // Cut at every seventh unit, also in the middle of a surrogate pair: as a tokenizer would.
    const pieces = content.match(/[\s\S]{1,7}/g) ?? []
    return [{ role: 'assistant', content: '' }, ...pieces.map(piece => ({ content: piece }))]
  }
  const whole = calls?.[0] as { id: string; type: string; function: { name: string; arguments: string } }
  const { name, arguments: text } = whole.function
  const opening = { index: 0, id: whole.id, type: whole.type, function: { name, arguments: '' } }
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
