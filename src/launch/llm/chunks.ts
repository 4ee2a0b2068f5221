import { type Choice, type Completion, errorIn } from './completion.ts'
import { DEPTH_OF_PARTS_MAX, isDeeperThan, isPlainObject, type JsonObject, parseJsonText } from './json.ts'
import { DONE, sseEvent } from './sse.ts'

/** What a piece of a stream adds to the first choice. */
export interface Delta {
  /** The text that it adds; may be empty. */
  readonly content: string
  /** The delta of the provider, with pieces of tool calls. */
  readonly delta: JsonObject
}

/** Fields that every chunk repeats. Other texts are pieces to be joined. */
const WHOLE: readonly string[] = ['role', 'type', 'id', 'name', 'index']

interface Growing {
  message: Record<string, unknown>
  finishReason: string | null
  logprobs: Record<string, unknown> | undefined
}

/** Assembles the chunks of a stream into one answer. */
export class ChunkAssembler {
  readonly #choices = new Map<number, Growing>()
  #frame: JsonObject = {}
  #usage: unknown
  #done = false
  /** Why the stream failed. A stream can fail after it has begun. */
  error: string | undefined

  /** Takes the data of one event. Returns what it adds to the first choice. */
  push(data: string): Delta | undefined {
    if (data === DONE) this.#done = true
    if (this.#done || data === '') return undefined
    const chunk = parseJsonText(data)
    if (!isPlainObject(chunk)) return this.#fail('a piece of the stream is not a JSON object')
    if (isDeeperThan(chunk, DEPTH_OF_PARTS_MAX)) return this.#fail('a piece of the stream is nested too deep')
    const error = errorIn(chunk)
    if (error !== undefined) return this.#fail(`the stream ends with an error: ${error}`)
    const { choices, usage, ...frame } = chunk
    this.#frame = { ...frame, ...this.#frame }
    if (usage !== undefined && usage !== null) this.#usage = usage
    let first: Delta | undefined
    for (const choice of Array.isArray(choices) ? choices : []) {
      if (isPlainObject(choice)) first = this.#choice(choice) ?? first
    }
    return first
  }

  /** Whether the answer is complete: the stream said so, or every choice has its finish reason. */
  get isComplete(): boolean {
    const choices = [...this.#choices.values()]
    return choices.length > 0 && (this.#done || choices.every(choice => choice.finishReason !== null))
  }

  get isDone(): boolean {
    return this.#done
  }

  completion(): Completion {
    const choices = [...this.#choices].sort(([a], [b]) => a - b)
    return {
      ...this.#frame,
      object: 'chat.completion',
      choices: choices.map(([index, { message, finishReason, logprobs }]) => ({
        index,
        message: finished(message),
        finish_reason: finishReason,
        ...(logprobs === undefined ? {} : { logprobs }),
      })),
      ...(this.#usage === undefined ? {} : { usage: this.#usage }),
    }
  }

  #choice(choice: JsonObject): Delta | undefined {
    const index = typeof choice['index'] === 'number' ? choice['index'] : 0
    let growing = this.#choices.get(index)
    if (growing === undefined) {
      growing = { message: { role: 'assistant' }, finishReason: null, logprobs: undefined }
      this.#choices.set(index, growing)
    }
    if (typeof choice['finish_reason'] === 'string') growing.finishReason = choice['finish_reason']
    if (isPlainObject(choice['logprobs'])) {
      growing.logprobs ??= {}
      grow(growing.logprobs, choice['logprobs'])
    }
    const { delta } = choice
    if (!isPlainObject(delta)) return undefined
    grow(growing.message, delta)
    if (index !== 0) return undefined
    return { content: typeof delta['content'] === 'string' ? delta['content'] : '', delta }
  }

  #fail(why: string): undefined {
    this.error ??= why
    return undefined
  }
}

/** Merges a piece into the whole: texts are joined, objects and indexed items merged, other items appended. */
function grow(whole: Record<string, unknown>, piece: JsonObject): void {
  for (const [name, value] of Object.entries(piece)) {
    if (value === null || value === undefined || name === '__proto__') continue
    const known = whole[name]
    if (typeof value === 'string' && typeof known === 'string' && !WHOLE.includes(name)) {
      whole[name] = known + value
    } else if (Array.isArray(value)) {
      const list = Array.isArray(known) ? known : []
      whole[name] = list
      for (const item of value) growList(list, item)
    } else if (isPlainObject(value)) {
      const object = isPlainObject(known) ? { ...known } : {}
      grow(object, value)
      whole[name] = object
    } else if (value !== '' || known === undefined) whole[name] = value
  }
}

function growList(list: unknown[], item: unknown): void {
  if (!isPlainObject(item) || typeof item['index'] !== 'number') {
    list.push(item)
    return
  }
  const at = list.findIndex(known => isPlainObject(known) && known['index'] === item['index'])
  const whole = at < 0 ? {} : { ...(list[at] as JsonObject) }
  grow(whole, item)
  if (at < 0) list.push(whole)
  else list[at] = whole
}

/** Removes the indexes of tool calls, which only chunks have, and adds a missing `content`. */
function finished(message: Record<string, unknown>): JsonObject {
  const { tool_calls: calls } = message
  const content = message['content'] ?? null
  if (!Array.isArray(calls)) return { ...message, content }
  const whole = calls.map(call => (isPlainObject(call) ? { ...call, index: undefined } : call))
  return { ...message, content, tool_calls: JSON.parse(JSON.stringify(whole)) as unknown }
}

/** A recorded answer as a stream, for a caller that asked for a stream. */
export function streamOf(completion: Completion): string {
  const { choices, usage, ...frame } = completion
  const head = { ...frame, object: 'chat.completion.chunk' }
  const deltas = choices.map((choice, place) => ({ ...head, choices: [opening(choice, place)] }))
  const ends = choices.map((choice, place) => ({
    ...head,
    choices: [{ index: choice.index ?? place, delta: {}, finish_reason: choice.finish_reason ?? null }],
  }))
  const counted = usage === undefined ? [] : [{ ...head, choices: [], usage }]
  return [...deltas, ...ends, ...counted, DONE].map(sseEvent).join('')
}

function opening(choice: Choice, place: number): JsonObject {
  const { tool_calls: calls } = choice.message
  const indexed = Array.isArray(calls)
    ? { tool_calls: calls.map((call: JsonObject, index) => ({ index, ...call })) }
    : {}
  const { logprobs } = choice
  return {
    index: choice.index ?? place,
    delta: { ...choice.message, ...indexed },
    finish_reason: null,
    ...(logprobs === undefined ? {} : { logprobs }),
  }
}
