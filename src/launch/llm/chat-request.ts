import { canonicalJson } from '../../core/canonical-json.ts'
import { AnnalsError } from '../../core/errors.ts'
import { sha256Hex } from '../../core/hash.ts'
import { hashJson, isPlainObject, type JsonObject } from './json.ts'

/** A message of a conversation. */
export interface ChatMessage {
  /** Who says it: `system`, `user`, `assistant`, `tool` … */
  readonly role: string
  /** The content, and other fields of the endpoint. */
  readonly [field: string]: unknown
}

/** The body of a chat request. */
export interface ChatBody {
  /** The model to call. */
  readonly model: string
  /** The conversation so far. */
  readonly messages: readonly ChatMessage[]
  /** The tools that the model may call. */
  readonly tools?: readonly unknown[] | null
  /** The sampling temperature. */
  readonly temperature?: unknown
  /** The most tokens that the answer may have. */
  readonly max_tokens?: unknown
  /** The newer name of `max_tokens`. */
  readonly max_completion_tokens?: unknown
  /** Whether the answer is streamed. */
  readonly stream?: unknown
  /** Other parameters of the endpoint. */
  readonly [field: string]: unknown
}

/**
 * The hashes of a request, each SHA-256 in hex over RFC 8785 canonical JSON:
 *
 * - `promptHash`: the messages of the roles `system` and `developer`;
 * - `toolSchemaHash`: `tools`, or `[]` without tools;
 * - `inputHash`: all other members except `model` and `DELIVERY`. In its
 *   `messages`, `null` stands for each prompt message, so that moving one
 *   makes a different request.
 *
 * An unknown member belongs to the input: at worst a recorded answer is not
 * found, which is better than using the answer to a different request. Members
 * that are `null` count as absent, as providers treat them.
 */
export interface RequestHashes {
  readonly promptHash: string
  readonly inputHash: string
  readonly toolSchemaHash: string
  readonly cacheKey: string
}

const PROMPT_ROLES: readonly unknown[] = ['system', 'developer']

/** Members that affect how the answer is delivered or billed, not what it says. */
const DELIVERY: readonly string[] = [
  'stream',
  'stream_options',
  'user',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'metadata',
  'store',
  'service_tier',
]

export function hashesOf(body: ChatBody): RequestHashes {
  const { model, messages, tools, ...rest } = body
  const isPrompt = (message: ChatMessage): boolean => PROMPT_ROLES.includes(message.role)
  const parameters = Object.entries(rest).filter(
    ([name, value]) => value !== null && value !== undefined && !DELIVERY.includes(name),
  )
  const input = {
    ...Object.fromEntries(parameters),
    messages: messages.map(message => (isPrompt(message) ? null : message)),
  }
  const promptHash = hashJson(messages.filter(isPrompt))
  const inputHash = hashJson(input)
  const toolSchemaHash = hashJson(tools ?? [])
  const cacheKey = sha256Hex([model, promptHash, inputHash, toolSchemaHash].join('|'))
  return { promptHash, inputHash, toolSchemaHash, cacheKey }
}

/** Checks only what the hashes need. The provider checks the rest and answers 400. */
export function checkChatBody(value: unknown): ChatBody {
  if (!isPlainObject(value)) return refuse('is not a JSON object')
  const { model, messages, tools } = value
  if (typeof model !== 'string' || model === '') return refuse('has no model')
  if (!Array.isArray(messages) || messages.length === 0) return refuse('has no messages')
  for (const [index, message] of messages.entries()) {
    if (!isPlainObject(message)) return refuse(`has a message that is not an object: messages[${index}]`)
    if (typeof message['role'] !== 'string') return refuse(`has a message without a role: messages[${index}]`)
  }
  if (tools !== undefined && tools !== null && !Array.isArray(tools))
    return refuse('has tools that are not a list')
  // Refuses values that JSON can't represent, before anything is written or sent.
  canonicalJson(value)
  return value as unknown as ChatBody
}

/** Removes members that are undefined, which canonical JSON refuses. */
export function withoutUndefined(value: unknown, depth = 0): unknown {
  // Deeper values are refused by a later check, with a better error.
  if (depth > 65) return value
  if (Array.isArray(value)) return value.map(item => withoutUndefined(item, depth + 1))
  if (!isPlainObject(value) || ![Object.prototype, null].includes(Object.getPrototypeOf(value))) return value
  const members = Object.entries(value).filter(([, member]) => member !== undefined)
  return Object.fromEntries(members.map(([name, member]) => [name, withoutUndefined(member, depth + 1)]))
}

/** The sampling parameters that the event of a call records. */
export function sampling(body: ChatBody): { temperature?: number; max_tokens?: number } {
  const { temperature } = body
  const maxTokens = body.max_tokens ?? body.max_completion_tokens
  return {
    ...(typeof temperature === 'number' ? { temperature } : {}),
    ...(typeof maxTokens === 'number' ? { max_tokens: maxTokens } : {}),
  }
}

export function wantsStream(body: JsonObject): boolean {
  return body['stream'] === true
}

function refuse(why: string): never {
  throw new AnnalsError('INVALID_ARGUMENT', `the chat request ${why}`, { reason: why })
}
