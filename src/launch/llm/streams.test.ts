import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ChunkAssembler, streamOf } from './chunks.ts'
import { type Completion, outputHash, readCompletion, usageOf } from './completion.ts'
import { DONE, SseParser, sseEvent } from './sse.ts'

/** The bytes of a text, cut at these positions. */
function cut(text: string, places: readonly number[]): Uint8Array[] {
  const bytes = Buffer.from(text, 'utf8')
  const at = [...new Set(places.map(place => place % (bytes.length + 1)))].sort((a, b) => a - b)
  return [0, ...at].map((start, i) => bytes.subarray(start, at[i] ?? bytes.length))
}

function parsed(text: string, places: readonly number[] = []): string[] {
  const parser = new SseParser()
  return [...cut(text, places).flatMap(piece => parser.push(piece)), ...parser.end()]
}

describe('server-sent events', () => {
  test('the events do not depend on how bytes are cut or how lines end', () => {
    const data = fc.string({ unit: 'grapheme' }).map(text => text.replace(/[\r\n\ufeff]/g, ''))
    const ending = fc.constantFrom('\n', '\r\n', '\r')
    fc.assert(
      fc.property(
        fc.array(data, { maxLength: 5 }),
        ending,
        fc.array(fc.nat(), { maxLength: 20 }),
        (events, end, places) => {
          const text = events.map(event => `: comment${end}event: x${end}data: ${event}${end}${end}`).join('')
          expect(parsed(text, places)).toEqual(events)
        },
      ),
    )
  })

  test('lines of data are joined, a space is optional, the last event needs no empty line', () => {
    expect(parsed('data:a\ndata: b\nid: 1\n\ndata: c')).toEqual(['a\nb', 'c'])
    expect(parsed('\n\n: nothing\n\n')).toEqual([])
  })
})

/** Answers of a provider. */
const completions: fc.Arbitrary<Completion> = fc
  .array(
    fc.record({
      content: fc.string({ unit: 'grapheme' }),
      reason: fc.constantFrom('stop', 'length', 'tool_calls'),
      calls: fc.array(fc.record({ name: fc.string({ minLength: 1 }), arguments: fc.json() }), {
        maxLength: 3,
      }),
    }),
    { minLength: 1, maxLength: 3 },
  )
  .map(choices => ({
    id: 'x',
    choices: choices.map(({ content, reason, calls }, index) => ({
      index,
      message: {
        role: 'assistant',
        content,
        ...(calls.length === 0
          ? {}
          : { tool_calls: calls.map((call, i) => ({ id: `c${i}`, type: 'function', function: call })) }),
      },
      finish_reason: reason,
    })),
    usage: { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 },
  }))

function assembled(text: string, places: readonly number[]): ChunkAssembler {
  const assembler = new ChunkAssembler()
  for (const data of parsed(text, places)) assembler.push(data)
  return assembler
}

describe('the pieces of a stream', () => {
  test('a recorded answer sent as a stream can be assembled again', () => {
    fc.assert(
      fc.property(completions, fc.array(fc.nat(), { maxLength: 10 }), (completion, places) => {
        const assembler = assembled(streamOf(completion), places)
        expect(assembler.isDone && assembler.isComplete).toBe(true)
        const again = assembler.completion()
        expect(again.choices).toEqual(completion.choices)
        expect(outputHash(again)).toBe(outputHash(completion))
        expect(usageOf(again)).toEqual({ input_tokens: 3, output_tokens: 4, total_tokens: 7 })
      }),
    )
  })

  test('a character that was cut in two is restored', () => {
    const assembler = new ChunkAssembler()
    for (const content of ['\ud83d', '\ude42']) {
      assembler.push(JSON.stringify({ choices: [{ index: 0, delta: { content } }] }))
    }
    expect(assembler.completion().choices[0].message['content']).toBe('🙂')
  })

  test('without an end is incomplete; a finish reason is an end even without [DONE]', () => {
    const piece = { choices: [{ index: 0, delta: { content: 'a' }, finish_reason: null }] }
    const end = { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }
    expect(assembled(sseEvent(piece), []).isComplete).toBe(false)
    expect(assembled(sseEvent(piece) + sseEvent(end), []).isComplete).toBe(true)
    expect(assembled(sseEvent(DONE), []).isComplete).toBe(false)
  })

  test.each([
    ['not json', /not a JSON/],
    [JSON.stringify({ error: { message: 'overloaded' } }), /overloaded/],
    [`${'['.repeat(100)}${']'.repeat(100)}`, /not a JSON object/],
    [`{"choices":${'['.repeat(5000)}${']'.repeat(5000)}}`, /too deep/],
  ])('%s is an error of the stream, not an exception', (data, why) => {
    const assembler = new ChunkAssembler()
    assembler.push(data)
    expect(assembler.error).toMatch(why)
  })

  test('__proto__ in a piece changes no prototype', () => {
    const assembler = new ChunkAssembler()
    assembler.push('{"choices":[{"index":0,"delta":{"__proto__":{"polluted":1},"content":"a"}}]}')
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined()
    expect(assembler.completion().choices[0].message['polluted']).toBeUndefined()
  })
})

describe('an answer', () => {
  test.each([
    [[], /not a JSON object/],
    [{ choices: [] }, /no choices/],
    [{ choices: [{}] }, /without a message/],
    [{ error: { message: 'no credits' } }, /no credits/],
    [JSON.parse('{"choices":[{"message":{"x":1e400}}]}'), /can't be kept/],
    [JSON.parse(`{"choices":${'['.repeat(5000)}${']'.repeat(5000)}}`), /too deep/],
  ])('that is invalid is recognized: %#', (value, why) => {
    expect(readCompletion(value)).toMatch(why)
  })

  test('with half a character is stored with a replacement character', () => {
    const completion = readCompletion({ choices: [{ message: { content: 'a\ud800' } }] }) as Completion
    expect(completion.choices[0].message['content']).toBe('a\ufffd')
  })

  test('has a hash that ignores what differs between calls', () => {
    const message = { role: 'assistant', content: 'a' }
    const choice = { index: 0, message, finish_reason: 'stop' }
    const one: Completion = { id: '1', created: 1, choices: [choice] }
    const other: Completion = {
      id: '2',
      usage: {},
      choices: [{ ...choice, message: { ...message, refusal: null } }],
    }
    expect(outputHash(other)).toBe(outputHash(one))
    expect(outputHash({ choices: [{ ...choice, finish_reason: 'length' }] })).not.toBe(outputHash(one))
  })

  test('has the token counts of the provider, by either name, or none', () => {
    const choices = [{ message: {} }]
    expect(usageOf({ choices, usage: { input_tokens: 1, output_tokens: 2 } })).toEqual({
      input_tokens: 1,
      output_tokens: 2,
      total_tokens: 3,
    })
    expect(usageOf({ choices, usage: { prompt_tokens: -1, completion_tokens: 'x' } })).toBeUndefined()
    expect(usageOf({ choices, usage: null })).toBeUndefined()
  })
})
