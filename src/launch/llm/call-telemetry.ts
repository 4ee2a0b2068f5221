import type { LlmCallEnd, LlmCallStart, Span } from '../../telemetry/launch-telemetry.ts'
import type { LlmCallFailed, LlmCallFinished, LlmCallStarted } from '../events.ts'
import { EvidenceStore } from './evidence.ts'

/** What telemetry is told about a call of a model, derived from the call's events. */

export function callStart(call: LlmCallStarted, span: Span, startedAt: number): LlmCallStart {
  const { call_id: callId, model, provider_base_url, prompt_hash, temperature, max_tokens } = call
  return {
    ...span,
    callId,
    startedAt,
    model,
    providerBaseUrl: provider_base_url,
    promptHash: prompt_hash,
    ...(temperature === undefined ? {} : { temperature }),
    ...(max_tokens === undefined ? {} : { maxTokens: max_tokens }),
    evidencePath: EvidenceStore.pathOf(callId),
  }
}

export function callEnd(call: LlmCallFinished | LlmCallFailed, span: Span): LlmCallEnd {
  const end = { ...span, callId: call.call_id, durationMs: call.latency_ms }
  if ('error_class' in call) {
    const { error_class, error_summary } = call
    const status = error_class === 'TIMEOUT' ? 'timeout' : error_class === 'ABORTED' ? 'cancelled' : 'failure'
    return { ...end, status, error: `${error_class}: ${error_summary}` }
  }
  const { token_usage: usage, finish_reason: finishReason, api_cost_usd: costUsd } = call
  return { ...end, status: 'success', usage, finishReason, ...(costUsd === undefined ? {} : { costUsd }) }
}
