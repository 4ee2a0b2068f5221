import { canonicalJson } from '../../core/canonical-json.ts'
import { AnnalsError } from '../../core/errors.ts'
import { sha256Hex } from '../../core/hash.ts'
import { hashJson, isPlainObject, type JsonObject } from './json.ts'

/**
 * What a request is made of, for its hashes:
 *
 * - **prompt**: the messages of the roles `system` and `developer`, in order,
 *   as they are sent;
 * - **tool schema**: `tools` as sent, `[]` without;
 * - **input**: all other members but `model` and those that change how the
 *   answer travels or who is billed, not what it says (`DELIVERY`). In its
 *   `messages` a prompt message leaves `null` in its place: moving it makes
 *   another request.
 *
 * A member that nobody knows belongs to the input: at worst a recorded answer
 * is not found. Taking the answer to another request would be worse.
 *
 * Each hash is SHA-256 over RFC 8785 canonical JSON, in hex. Members that are
 * `null` at the top count as absent, as providers treat them.
 */

export interface ChatMessage {
  readonly role: string
  readonly [field: string]: unknown
}

export interface ChatBody {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  readonly tools?: readonly unknown[] | null
  readonly temperature?: unknown
  readonly max_tokens?: unknown
  readonly max_completion_tokens?: unknown
  readonly stream?: unknown
  readonly [field: string]: unknown
}

export interface RequestHashes {
  readonly promptHash: string
  readonly inputHash: string
  readonly toolSchemaHash: string
  readonly cacheKey: string
}

const PROMPT_ROLES: readonly unknown[] = ['system', 'developer']

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

/** Only what the hashes need is checked: the provider knows the rest better, and answers 400. */
export function checkChatBody(value: unknown): ChatBody {
  if (!isPlainObject(value)) return refuse('is no JSON object')
  const { model, messages, tools } = value
  if (typeof model !== 'string' || model === '') return refuse('has no model')
  if (!Array.isArray(messages) || messages.length === 0) return refuse('has no messages')
  for (const [index, message] of messages.entries()) {
    if (!isPlainObject(message)) return refuse(`has a message that is no object: messages[${index}]`)
    if (typeof message['role'] !== 'string') return refuse(`has a message without a role: messages[${index}]`)
  }
  if (tools !== undefined && tools !== null && !Array.isArray(tools))
    return refuse('has tools that are no list')
  // Refuses what JSON can't hold, lone surrogates among it, before anything is written or sent.
  canonicalJson(value)
  return value as unknown as ChatBody
}

/** What people write in TypeScript has members that are undefined; JSON has none, and canonical JSON refuses them. */
export function withoutUndefined(value: unknown, depth = 0): unknown {
  // One level more than may be: the check behind this one says so in its own words.
  if (depth > 65) return value
  if (Array.isArray(value)) return value.map(item => withoutUndefined(item, depth + 1))
  if (!isPlainObject(value) || ![Object.prototype, null].includes(Object.getPrototypeOf(value))) return value
  const members = Object.entries(value).filter(([, member]) => member !== undefined)
  return Object.fromEntries(members.map(([name, member]) => [name, withoutUndefined(member, depth + 1)]))
}

/** The members of an event's payload that say how an answer was asked for. */
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
