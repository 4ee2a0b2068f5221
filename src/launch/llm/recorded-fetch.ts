import { AnnalsError } from '../../core/errors.ts'
import { callError } from './failure.ts'
import type { Llm } from './llm.ts'
import type { Fetch } from './transport.ts'

/**
 * A `fetch` for an SDK, such as OpenAI's. Its chat completions are recorded,
 * replayed and retried like those of `chat`; other requests pass unchanged.
 * Turn off the SDK's own retries (`maxRetries: 0`), because each retry would
 * be another recorded call.
 */
export function recordedFetch(llm: Llm, span: { readonly parentSpanId?: string } = {}): Fetch {
  return async (input, init) => {
    if (!isChat(input, init)) {
      if (llm.mode !== 'replay') return llm.transport(input, init)
      const message = 'replay makes no network calls, and only chat completions are recorded'
      throw new AnnalsError('INVALID_OPERATION', message, { mode: 'replay' })
    }
    const request = new Request(input, init)
    const { response, outcome } = await llm.exchange({
      url: request.url,
      headers: [...request.headers],
      body: await request.text(),
      // Not `request.signal`, which stops following this signal once `request` is garbage collected.
      signal: init?.signal ?? (input instanceof Request ? input.signal : undefined),
      parentSpanId: span.parentSpanId,
    })
    if (response !== undefined) return response
    const ended = await outcome
    if (!ended.ok) throw callError(ended.callId, ended.failure, ended.attempts)
    throw new AnnalsError('ILLEGAL_STATE', `the call ${ended.callId} ended without a response`)
  }
}

function isChat(input: string | URL | Request, init: RequestInit | undefined): boolean {
  const isRequest = input instanceof Request
  const method = init?.method ?? (isRequest ? input.method : 'GET')
  const url = new URL(isRequest ? input.url : input)
  return method.toUpperCase() === 'POST' && url.pathname.endsWith('/chat/completions')
}
