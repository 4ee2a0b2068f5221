import { canonicalJson } from '../../core/canonical-json.ts'
import { AnnalsError } from '../../core/errors.ts'
import type { TokenUsage } from '../events.ts'
import {
  DEPTH_OF_PARTS_MAX,
  hashJson,
  isDeeperThan,
  isPlainObject,
  type JsonObject,
  wellFormed,
} from './json.ts'

/** An answer: the body of a chat completion, or what a stream of chunks adds up to. */
export interface Completion {
  readonly choices: readonly Choice[]
  readonly usage?: unknown
  readonly [field: string]: unknown
}

export interface Choice {
  readonly index?: unknown
  readonly message: JsonObject
  readonly finish_reason?: unknown
  readonly [field: string]: unknown
}

export const NO_USAGE: TokenUsage = { input_tokens: 0, output_tokens: 0, total_tokens: 0 }

/** The completion, or in words why it is none. Some providers answer 200 with an error inside. */
export function readCompletion(answer: unknown): Completion | string {
  if (isDeeperThan(answer, DEPTH_OF_PARTS_MAX)) return 'the answer is nested too deep'
  const value = wellFormed(answer)
  if (!isPlainObject(value)) return 'the answer is no JSON object'
  const error = errorIn(value)
  if (error !== undefined) return `the answer is an error: ${error}`
  const { choices } = value
  if (!Array.isArray(choices) || choices.length === 0) return 'the answer has no choices'
  for (const [index, choice] of choices.entries()) {
    if (!isPlainObject(choice) || !isPlainObject(choice['message'])) {
      return `the answer has a choice without a message: choices[${index}]`
    }
  }
  return unhashable(value) ?? (value as unknown as Completion)
}

/** `1e400` is JSON, and Infinity to JavaScript, which canonical JSON refuses. */
function unhashable(value: unknown): string | undefined {
  try {
    canonicalJson(value)
    return undefined
  } catch (error) {
    if (error instanceof AnnalsError) return `the answer can't be kept: ${error.message}`
    throw error
  }
}

/** What a provider says went wrong; undefined if it says nothing. */
export function errorIn(value: unknown): string | undefined {
  if (!isPlainObject(value)) return undefined
  const { error } = value
  if (typeof error === 'string') return error
  if (!isPlainObject(error)) return undefined
  return typeof error['message'] === 'string' ? error['message'] : 'without a message'
}

/**
 * The hash of what was answered, and of nothing that differs from one call to
 * the next: of each choice, in order, its index, finish reason and message
 * without members that are null. So a streamed answer and a whole one agree.
 */
export function outputHash(completion: Completion): string {
  const output = inOrder(completion).map(({ index, choice }) => ({
    index,
    message: withoutNulls(choice.message),
    finish_reason: finishReasonOf(choice),
  }))
  return hashJson(output)
}

function inOrder({ choices }: Completion): { index: number; choice: Choice }[] {
  return choices
    .map((choice, place) => ({ index: typeof choice.index === 'number' ? choice.index : place, choice }))
    .sort((a, b) => a.index - b.index)
}

function withoutNulls(message: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(message).filter(([, member]) => member !== null))
}

function finishReasonOf(choice: Choice | undefined): string {
  return typeof choice?.finish_reason === 'string' ? choice.finish_reason : 'unknown'
}

export function firstChoice(completion: Completion): { message: JsonObject; finishReason: string } {
  const choice = inOrder(completion)[0].choice
  return { message: choice.message, finishReason: finishReasonOf(choice) }
}

/** As the provider counted; undefined where it did not. Never estimated. */
export function usageOf(completion: Completion): TokenUsage | undefined {
  const { usage } = completion
  if (!isPlainObject(usage)) return undefined
  const input = count(usage['prompt_tokens'] ?? usage['input_tokens'])
  const output = count(usage['completion_tokens'] ?? usage['output_tokens'])
  if (input === undefined && output === undefined) return undefined
  const [inputTokens, outputTokens] = [input ?? 0, output ?? 0]
  const total = count(usage['total_tokens']) ?? inputTokens + outputTokens
  return { input_tokens: inputTokens, output_tokens: outputTokens, total_tokens: total }
}

function count(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined
}
