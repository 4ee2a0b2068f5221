import { describe, expect, expectTypeOf, test } from 'vitest'
import { type Annals, open } from './annals.ts'
import type {
  Cell,
  Event,
  MachineDefinition,
  MachineState,
  Run,
  ScopedTransaction,
  StoredTrace,
  Thought,
  ToolCall,
  Value,
} from './index.ts'

/** P33: the types of what is stored. The compiler checks them; the tests run so that types and behaviour agree. */

const RUN = 'run-1'

interface Address {
  readonly street: string
  readonly zip?: number
}

interface User {
  readonly name: string
  readonly born: bigint
  readonly photo: Uint8Array
  readonly addresses: readonly Address[]
}

const ADA: User = { name: 'Ada', born: 1815n, photo: new Uint8Array([1]), addresses: [{ street: 'Dorset' }] }

interface Answered {
  readonly text: string
}

/** The types of an event log, as an interface. */
interface Chat {
  readonly asked: { readonly question: string }
  readonly answered: Answered
}

const DOOR = {
  initial: 'shut',
  terminal: ['gone'],
  transitions: [
    { from: 'shut', event: 'push', to: 'open' },
    { from: 'open', event: 'smash', to: 'gone' },
  ],
} as const satisfies MachineDefinition

/** Values that can't be stored. Each line is a compile error, and `INVALID_ARGUMENT` when it runs. */
const UNSTORABLE: Readonly<Record<string, (db: Annals) => Promise<unknown>>> = {
  // @ts-expect-error: a function
  'kv: a function': db => db.kv.put(RUN, 'k', () => 1),
  // @ts-expect-error: a date
  'kv: a date': db => db.kv.put(RUN, 'k', new Date()),
  // @ts-expect-error: a map
  'kv: a map': db => db.kv.put(RUN, 'k', new Map()),
  // @ts-expect-error: undefined
  'kv: undefined': db => db.kv.put(RUN, 'k', undefined),
  // @ts-expect-error: a symbol
  'kv: a symbol': db => db.kv.put(RUN, 'k', Symbol('s')),
  // @ts-expect-error: a function within an object
  'kv: a method': db => db.kv.put(RUN, 'k', { name: 'Ada', greet: () => 'hello' }),
  // @ts-expect-error: a date, with the scope bound
  'kv: a date with the scope bound': db => db.run(RUN).kv.put('k', new Date()),
  // @ts-expect-error: a function
  'events: a function': db => db.events.append(RUN, 'note', () => 1),
  // @ts-expect-error: a date within an object
  'events: a date': db => db.events.append(RUN, 'note', { at: new Date() }),
  // @ts-expect-error: undefined
  'events: undefined': db => db.run(RUN).events.append('note', undefined),
  // @ts-expect-error: a map in a batch
  'events: a map': db => db.events.appendBatch(RUN, [{ type: 'note', payload: new Map() }]),
  // @ts-expect-error: a symbol
  'cells: a symbol': db => db.cells.init(RUN, 'c', Symbol('s')),
  // @ts-expect-error: a date
  'cells: a date': db => db.run(RUN).cells.set('c', new Date()),
  // @ts-expect-error: a function
  'cells: a function': db => db.cells.transitionOrInit(RUN, 'c', 0, () => ({ value: () => 1, result: 0 })),
  // @ts-expect-error: a set as payload
  'machines: a set': db => db.machines.send(RUN, 'door', 'push', new Set()),
  // @ts-expect-error: a date as arguments
  'traces: a date': db => db.traces.record(RUN, { type: 'ToolCall', toolName: 't', arguments: new Date() }),
  // @ts-expect-error: a function as metadata
  'traces: a function': db => db.traces.record(RUN, { type: 'Thought', content: '' }, { metadata: () => 1 }),
  // @ts-expect-error: a map as metadata
  'runs: a map': db => db.runs.create({ metadata: new Map() }),
  // @ts-expect-error: a date as metadata
  'runs: a date': db => db.runs.updateMetadata(RUN, new Date()),
}

describe('P33: types of stored values', () => {
  for (const [what, call] of Object.entries(UNSTORABLE)) {
    test(`${what} is a compile error, and INVALID_ARGUMENT`, async () => {
      await using db = await open({ memory: true })
      await db.runs.create({ runId: RUN })
      await db.machines.define(RUN, 'door', DOOR)
      await expect(call(db)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    })
  }

  test('what the type does not tell is accepted', async () => {
    await using db = await open({ memory: true })
    const unknown: unknown = ADA
    const value: Value = { any: ['value'] }
    await db.kv.put(RUN, 'k', unknown)
    await db.kv.put(RUN, 'k', value)
    await db.events.append(RUN, 'note', unknown)
    await db.cells.init(RUN, 'c', unknown)
    await db.runs.create({ metadata: unknown })
    expectTypeOf(await db.kv.get(RUN, 'k')).toEqualTypeOf<Value | undefined>()
    expectTypeOf(await db.events.read(RUN, 0)).toEqualTypeOf<Event | undefined>()
    expectTypeOf(await db.cells.read(RUN, 'c')).toEqualTypeOf<Cell | undefined>()
  })

  test('kv takes interfaces and reads them back, with the scope or bound', async () => {
    await using db = await open({ memory: true })
    await db.kv.put(RUN, 'ada', ADA)
    expectTypeOf(await db.kv.get<User>(RUN, 'ada')).toEqualTypeOf<User | undefined>()
    const users = db.run(RUN).kv.of<User>()
    await users.put('ada', ADA)
    // @ts-expect-error: not a user
    await users.put('eve', { name: 'Eve' })
    expectTypeOf(await users.get('ada')).toEqualTypeOf<User | undefined>()
    expect(await users.get('ada')).toEqual(ADA)
  })

  test('cells take interfaces and read them back, with the scope or bound', async () => {
    await using db = await open({ memory: true })
    await db.cells.init(RUN, 'plain', ADA)
    const users = db.cells.of<User>()
    await users.init(RUN, 'ada', ADA)
    expectTypeOf(await users.read(RUN, 'ada')).toEqualTypeOf<Cell<User> | undefined>()
    const rename = ({ value }: { readonly value: User }): { value: User; result: string } => ({
      value: { ...value, name: 'Augusta' },
      result: value.name,
    })
    const step = await users.transition(RUN, 'ada', rename)
    expectTypeOf(step).toEqualTypeOf<{
      readonly result: string
      readonly value: User
      readonly version: number
    }>()
    expect(step).toMatchObject({ result: 'Ada', value: { name: 'Augusta' } })
    // @ts-expect-error: not a user
    await users.set(RUN, 'eve', { name: 'Eve' })
    const bound = db.run(RUN).cells.of<User>()
    await bound.set('ada', ADA)
    expectTypeOf(await bound.read('ada')).toEqualTypeOf<Cell<User> | undefined>()
    // Without `of`, a transition gets any value and may return an interface.
    const { value } = await db.cells.transition(RUN, 'plain', () => ({ value: ADA, result: 0 }))
    expectTypeOf(value).toEqualTypeOf<Value>()
  })

  test('events have payloads by type, and reading gives a discriminated union', async () => {
    await using db = await open({ memory: true })
    const chat = db.events.of<Chat>()
    await chat.append(RUN, 'asked', { question: 'why' })
    await chat.append(RUN, 'answered', { text: 'so' })
    await chat.appendBatch(RUN, [{ type: 'answered', payload: { text: 'yes' } }])
    await chat.append(RUN, 'asked', { question: 'why' }, { idempotencyKey: 'a' })
    // @ts-expect-error: no such type
    await chat.append(RUN, 'ansered', { text: 'so' })
    // @ts-expect-error: the payload of another type
    await chat.append(RUN, 'asked', { text: 'so' })
    // @ts-expect-error: the payload of another type
    await chat.appendBatch(RUN, [{ type: 'asked', payload: { text: 'yes' } }])
    const texts: string[] = []
    for await (const event of chat.iterate(RUN, { to: 3 })) {
      if (event.type === 'asked') texts.push(event.payload.question)
      else texts.push(event.payload.text)
    }
    expect(texts).toEqual(['why', 'so', 'yes'])
    for await (const event of chat.iterate(RUN, { types: ['answered'] })) {
      expectTypeOf(event).toEqualTypeOf<Event<'answered', Answered>>()
      break
    }
    const answers = await chat.readByType(RUN, 'answered', { limit: 1 })
    expectTypeOf(answers).toEqualTypeOf<readonly Event<'answered', Answered>[]>()
    expect(answers[0].payload.text).toBe('so')
    const bound = db.run(RUN).events.of<Chat>()
    expectTypeOf(await bound.head()).toEqualTypeOf<
      Event<'asked', Chat['asked']> | Event<'answered', Answered> | undefined
    >()
    // Without `of`, a batch may hold payloads of different interfaces.
    await db.events.appendBatch(RUN, [
      { type: 'user', payload: ADA },
      { type: 'address', payload: ADA.addresses[0] },
    ])
  })

  test('machines have the states and events of their definition', async () => {
    await using db = await open({ memory: true })
    const made = await db.machines.define(RUN, 'door', {
      initial: 'shut',
      transitions: [{ from: 'shut', event: 'push', to: 'open' }],
    })
    expectTypeOf(made).toEqualTypeOf<MachineState<'shut' | 'open'>>()
    const doors = db.machines.of<typeof DOOR>()
    await doors.define(RUN, 'front', DOOR)
    const { state, from } = await doors.send(RUN, 'front', 'push', { force: 2 })
    expectTypeOf(state).toEqualTypeOf<'shut' | 'open' | 'gone'>()
    expect([from, state]).toEqual(['shut', 'open'])
    // @ts-expect-error: no such event
    await expect(doors.send(RUN, 'front', 'pull')).rejects.toMatchObject({ code: 'INVALID_TRANSITION' })
    expectTypeOf((await db.run(RUN).machines.current('front')).state).toEqualTypeOf<string>()
  })

  test('traces take interfaces, and a query by type has that type', async () => {
    await using db = await open({ memory: true })
    await db.traces.record(RUN, { type: 'ToolCall', toolName: 't', arguments: ADA, result: ADA.addresses })
    await db.traces.record(RUN, { type: 'Custom', traceType: 'user', data: ADA }, { metadata: ADA })
    const calls = await db.traces.queryByType(RUN, 'ToolCall')
    expectTypeOf(calls).toEqualTypeOf<readonly StoredTrace<Value, ToolCall>[]>()
    expect(calls[0].trace.toolName).toBe('t')
    const traces = db.run(RUN).traces.of<User>()
    const id = await traces.record({ type: 'Thought', content: 'hm' }, { metadata: ADA })
    expectTypeOf(await traces.get(id)).toEqualTypeOf<StoredTrace<User> | undefined>()
    expectTypeOf(await traces.queryByType('Thought')).toEqualTypeOf<readonly StoredTrace<User, Thought>[]>()
    // @ts-expect-error: not a user
    await traces.record({ type: 'Thought', content: 'hm' }, { metadata: { name: 'Eve' } })
  })

  test('runs have metadata of a type', async () => {
    await using db = await open({ memory: true })
    const made = await db.runs.create({ metadata: ADA })
    expectTypeOf(made).toEqualTypeOf<Run<User>>()
    expect(made.metadata.name).toBe('Ada')
    expectTypeOf(await db.runs.create()).toEqualTypeOf<Run>()
    const runs = db.runs.of<User>()
    const { runId } = await runs.create({ metadata: ADA })
    expectTypeOf(await runs.get(runId)).toEqualTypeOf<Run<User> | undefined>()
    // @ts-expect-error: not a user
    await runs.updateMetadata(runId, { name: 'Eve' })
  })

  test('a transaction has the same types', async () => {
    await using db = await open({ memory: true })
    const work = async (tx: ScopedTransaction): Promise<void> => {
      await tx.kv.put('ada', ADA)
      expectTypeOf(await tx.kv.of<User>().get('ada')).toEqualTypeOf<User | undefined>()
      await tx.run('other').events.of<Chat>().append('answered', { text: 'yes' })
      expectTypeOf(await tx.runs.create({ metadata: ADA })).toEqualTypeOf<Run<User>>()
    }
    await db.transaction(RUN, work)
    expect(await db.events.length('other')).toBe(1)
  })
})
