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

/** The answer of a model: the body of a chat completion, or the assembled chunks of a stream. */
export interface Completion {
  /** The alternative answers; at least one. */
  readonly choices: readonly Choice[]
  /** The token counts of the provider. */
  readonly usage?: unknown
  /** Other fields of the provider. */
  readonly [field: string]: unknown
}

/** One of the alternative answers. */
export interface Choice {
  /** Its position among the choices. */
  readonly index?: unknown
  /** The message of the model. */
  readonly message: JsonObject
  /** Why the model stopped. */
  readonly finish_reason?: unknown
  /** Other fields of the provider. */
  readonly [field: string]: unknown
}

export const NO_USAGE: TokenUsage = { input_tokens: 0, output_tokens: 0, total_tokens: 0 }

/** The completion, or a text that says why the answer is invalid. Some providers send errors with status 200. */
export function readCompletion(answer: unknown): Completion | string {
  if (isDeeperThan(answer, DEPTH_OF_PARTS_MAX)) return 'the answer is nested too deep'
  const value = wellFormed(answer)
  if (!isPlainObject(value)) return 'the answer is not a JSON object'
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

/** Canonical JSON refuses some values that `JSON.parse` accepts, such as `1e400`. */
function unhashable(value: unknown): string | undefined {
  try {
    canonicalJson(value)
    return undefined
  } catch (error) {
    if (error instanceof AnnalsError) return `the answer can't be kept: ${error.message}`
    throw error
  }
}

/** The error message of a provider; undefined if the value has none. */
export function errorIn(value: unknown): string | undefined {
  if (!isPlainObject(value)) return undefined
  const { error } = value
  if (typeof error === 'string') return error
  if (!isPlainObject(error)) return undefined
  return typeof error['message'] === 'string' ? error['message'] : 'without a message'
}

/**
 * The hash of an answer: the index, finish reason and message (without null members) of each choice, in order. It leaves
 * out everything that differs between two calls, so a streamed answer has the same hash as a complete one.
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
