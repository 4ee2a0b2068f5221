import { expect } from 'vitest'
import type {
  Annals,
  AppendBatchOptions,
  AppendEventOptions,
  CreateRunOptions,
  IterateOptions,
  NewEvent,
  ReadByTypeOptions,
  TraceOptions,
  Transition,
} from '../../index.ts'
import { bad, contentsOf, gather, RUN, refused, runsOf, type Suite } from './suite.ts'

const THOUGHT = { type: 'Thought', content: '' } as const
const NO_WHOLE_NUMBERS: readonly unknown[] = [-1, 1.5, Number.NaN, -0.5, '1', null, 2 ** 53, 1n, {}]
const NO_LIMITS: readonly unknown[] = [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '1', null, 1n]
const NO_OPTIONS: readonly unknown[] = [null, 7, 'x', true, { nothing: 1 }]

/** Calls that must be refused, each with its invalid argument. */
const BAD: Readonly<Record<string, (db: Annals) => readonly (readonly [unknown, () => Promise<unknown>])[]>> =
  {
    'kv: ttlMs': db =>
      [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, Number.MAX_SAFE_INTEGER, '5', 5n, null].map(
        ttlMs => [ttlMs, () => db.kv.put(RUN, 'k', 2, { ttlMs: bad(ttlMs) })],
      ),
    'kv: limit': db =>
      NO_LIMITS.flatMap(limit => [
        [limit, () => db.kv.list(RUN, { limit: bad(limit) })],
        [limit, () => db.kv.entries(RUN, { limit: bad(limit) })],
        [limit, () => db.transaction(RUN, tx => tx.kv.list({ limit: bad(limit) }))],
      ]),
    'kv: prefix and after': db =>
      [7, null, 'a\0', '\ud800', {}].flatMap(text => [
        [text, () => db.kv.list(RUN, { prefix: bad(text) })],
        [text, () => db.kv.list(RUN, { after: bad(text) })],
      ]),
    'kv: options': db =>
      NO_OPTIONS.flatMap(options => [
        [options, () => db.kv.put(RUN, 'k', 2, bad(options))],
        [options, () => db.kv.list(RUN, bad(options))],
        [options, () => db.kv.entries(RUN, bad(options))],
      ]),
    'kv: a missing value': db => [[undefined, () => db.kv.put(RUN, 'k', bad(undefined))]],
    'events: a sequence': db =>
      NO_WHOLE_NUMBERS.flatMap(sequence => [
        [sequence, () => db.events.read(RUN, bad(sequence))],
        [sequence, () => db.events.readRange(RUN, bad(sequence), 5)],
        [sequence, () => db.events.readRange(RUN, 0, bad(sequence))],
        [sequence, () => gather(db.events.iterate(RUN, { from: bad(sequence) }))],
        [sequence, () => db.events.tail(RUN, { from: bad(sequence) }).next()],
      ]),
    'events: an end before the start': db => [
      ['2, 1', () => db.events.readRange(RUN, 2, 1)],
      ['1, 0', () => db.transaction(RUN, tx => tx.events.readRange(1, 0))],
    ],
    'events: options': db =>
      NO_OPTIONS.flatMap(options => [
        [options, () => gather(db.events.iterate(RUN, bad<IterateOptions>(options)))],
        [options, () => db.events.tail(RUN, bad(options)).next()],
      ]),
    'P25: options of append': db =>
      [
        ...NO_OPTIONS,
        ...[-1, 1.5, '0', null, Number.NaN].map(expectedLength => ({ expectedLength })),
        ...['', 'x'.repeat(1025), 7, null, 'a\0', '\ud800'].map(idempotencyKey => ({ idempotencyKey })),
        { idempotencyKey: 'a', expectedLength: -1 },
        { expected: 0 },
      ].flatMap(options => [
        [options, () => db.events.append(RUN, 'n', 1, bad<AppendEventOptions>(options))],
        [
          options,
          () => db.transaction(RUN, tx => tx.events.append('n', 1, bad<AppendEventOptions>(options))),
        ],
      ]),
    'P25: options of appendBatch': db =>
      [...NO_OPTIONS, { expectedLength: -1 }, { idempotencyKey: 'a' }].map(options => [
        options,
        () => db.events.appendBatch(RUN, [{ type: 'n', payload: 1 }], bad<AppendBatchOptions>(options)),
      ]),
    'P25: options of iterate': db =>
      [{ to: -1 }, { to: 1.5 }, { reverse: 1 }, { types: 'n' }, { types: [''] }, { types: [7] }].map(
        options => [options, () => gather(db.events.iterate(RUN, bad<IterateOptions>(options)))],
      ),
    'P25: options of readByType': db =>
      [...NO_OPTIONS, { after: -1 }, { after: '0' }, { limit: 0 }, { limit: 1.5 }, { from: 0 }].map(
        options => [options, () => db.events.readByType(RUN, 'n', bad<ReadByTypeOptions>(options))],
      ),
    'events: a signal': db =>
      [7, {}, 'x', new AbortController()].map(signal => [
        signal,
        () => db.events.tail(RUN, { from: 1, signal: bad(signal) }).next(),
      ]),
    'events: a batch': db =>
      [
        undefined,
        null,
        'n',
        { type: 'n', payload: 1 },
        [null],
        ['n'],
        [{ type: 'n' }],
        [{ payload: 1 }],
        [{ type: 'n', payload: 1, timestamp: 5 }],
        [
          { type: 'n', payload: 1 },
          { type: 'n', payload: () => 1 },
        ],
        new Array(2),
      ].map(events => [events, () => db.events.appendBatch(RUN, bad<readonly NewEvent[]>(events))]),
    'cells: an expected version': db =>
      NO_WHOLE_NUMBERS.map(version => [version, () => db.cells.cas(RUN, 'c', bad(version), 2)]),
    'cells: a transition': db =>
      [undefined, null, 7, {}].flatMap(step => [
        [step, () => db.cells.transition(RUN, 'c', bad<Transition<unknown>>(step))],
        [step, () => db.cells.transitionOrInit(RUN, 'new', 0, bad<Transition<unknown>>(step))],
      ]),
    'cells: an initial value': db => [
      [
        'undefined',
        () => db.cells.transitionOrInit(RUN, 'new', bad(undefined), () => ({ value: 1, result: 1 })),
      ],
    ],
    'machines: an event': db =>
      ['', 7, null, undefined, 'a\0'].flatMap(event => [
        [event, () => db.machines.send(RUN, 'm', bad(event))],
        [event, () => db.machines.can(RUN, 'm', bad(event))],
      ]),
    'machines: a payload': db => [
      [
        'a function',
        () =>
          db.machines.send(
            RUN,
            'm',
            'go',
            bad(() => 1),
          ),
      ],
      ['a date', () => db.machines.can(RUN, 'm', 'go', bad(new Date()))],
    ],
    'machines: a version': db =>
      NO_WHOLE_NUMBERS.map(version => [version, () => db.machines.definition(RUN, 'm', bad(version))]),
    'traces: a time': db =>
      [Number.NaN, 1.5, '0', null, undefined, Number.NEGATIVE_INFINITY, new Date(0)].flatMap(time => [
        [time, () => db.traces.queryByTime(RUN, bad(time), 5)],
        [time, () => db.traces.queryByTime(RUN, 0, bad(time))],
      ]),
    'traces: an end before the start': db => [['2, 1', () => db.traces.queryByTime(RUN, 2, 1)]],
    'traces: options': db => [
      ...NO_OPTIONS.flatMap(options => [
        [options, () => db.traces.record(RUN, THOUGHT, bad<TraceOptions>(options))] as const,
        [options, () => db.traces.recordChild(RUN, 't', THOUGHT, bad<TraceOptions>(options))] as const,
      ]),
      [
        'a second parent',
        () => db.traces.recordChild(RUN, 't', THOUGHT, bad<TraceOptions>({ parentId: 't' })),
      ],
    ],
    'traces: tags': db =>
      ['a', 7, null, [7], [null], [''], { 0: 'a' }, new Set(['a'])].map(tags => [
        tags,
        () => db.traces.record(RUN, THOUGHT, { tags: bad(tags) }),
      ]),
    'runs: options of create': db => [
      ...NO_OPTIONS.map(options => [options, () => db.runs.create(bad<CreateRunOptions>(options))] as const),
      ['a status', () => db.runs.create(bad<CreateRunOptions>({ status: 'Completed' }))],
    ],
    'runs: a parent': db =>
      ['', 7, null, {}, 'a\0', '_shared', '\ud800'].map(parentRun => [
        parentRun,
        () => db.runs.create({ runId: 'new', parentRun: bad(parentRun) }),
      ]),
    'runs: tags': db =>
      ['a', 7, null, [7], [''], [['a']]].flatMap(tags => [
        [tags, () => db.runs.create({ runId: 'new', tags: bad(tags) })],
        [tags, () => db.runs.addTags(RUN, bad(tags))],
      ]),
    'runs: metadata': db => [
      ['a function', () => db.runs.create({ runId: 'new', metadata: bad(() => 1) })],
      ['undefined', () => db.runs.updateMetadata(RUN, bad(undefined))],
      ['a date', () => db.runs.updateMetadata(RUN, bad(new Date()))],
    ],
    'runs: a status': db =>
      ['active', 'Done', '', 7, null, undefined, '__proto__', 'toString'].map(status => [
        status,
        () => db.runs.updateStatus(RUN, bad(status)),
      ]),
    'runs: an error': db =>
      [undefined, null, 7, new Error('x'), 'a\ud800'].map(error => [
        error,
        () => db.runs.fail(RUN, bad(error)),
      ]),
    'upkeep: a scope': db =>
      [7, null, '', '_shared', {}].flatMap(scope => [
        [scope, () => db.verifyIndices(bad(scope))],
        [scope, () => db.rebuildIndices(bad(scope))],
      ]),
  }

/** P17: an invalid argument is INVALID_ARGUMENT with a message that names it, and changes nothing. */
export function testBadInput(suite: Suite): void {
  for (const [name, casesOf] of Object.entries(BAD)) {
    suite.holds(`P17: an invalid argument is refused, and changes nothing: ${name}`, async db => {
      await fill(db)
      const before = [await contentsOf(db, RUN), await runsOf(db), await db.machines.current(RUN, 'm')]
      const cases = casesOf(db)
      expect(cases.length).toBeGreaterThan(0)
      for (const [what, call] of cases) {
        await refused(call(), 'INVALID_ARGUMENT', `${name} ${printed(what)}`)
      }
      expect([await contentsOf(db, RUN), await runsOf(db), await db.machines.current(RUN, 'm')]).toEqual(
        before,
      )
    })
  }

  suite.holds('every error has a message and frozen details that name the fault', async db => {
    const { message, details, name } = await refused(db.kv.put(RUN, '', 1), 'INVALID_ARGUMENT')
    expect(name).toBe('AnnalsError')
    expect(message).toContain('key')
    expect(details).toMatchObject({ name: 'key' })
    expect(Object.isFrozen(details)).toBe(true)
    const missing = await refused(db.runs.complete('nobody'), 'RUN_NOT_FOUND')
    expect(missing.message).toContain('nobody')
    const deep = await refused(db.kv.put(RUN, 'k', bad({ a: [1, { b: new Date() }] })), 'INVALID_ARGUMENT')
    expect(deep.message).toContain('a[1].b')
  })

  suite.holds('an invalid call rejects its promise, and never throws synchronously', async db => {
    const calls: (() => unknown)[] = [
      () => db.kv.put(bad(null), bad(7), bad(undefined)),
      () => db.events.append(bad(null), bad<string>(7), bad(undefined)),
      () => db.cells.set(bad(null), bad(7), bad(undefined)),
      () => db.machines.send(bad(null), bad(7), bad(undefined)),
      () => db.traces.record(bad(null), bad(7)),
      () => db.runs.create(bad<CreateRunOptions>(null)),
      () => db.transaction(bad(null), bad(7)),
      () => db.begin(bad(null)),
      () => db.verifyIndices(bad(null)),
    ]
    for (const call of calls) {
      const answer = call()
      expect(answer).toBeInstanceOf(Promise)
      await refused(answer as Promise<unknown>, 'INVALID_ARGUMENT')
    }
  })
}

async function fill(db: Annals): Promise<void> {
  await db.runs.create({ runId: RUN, tags: ['a'] })
  await db.transaction(RUN, async tx => {
    await tx.kv.put('k', 1)
    await tx.events.append('n', 1)
    await tx.cells.init('c', 1)
    await tx.machines.define('m', { initial: 'a', transitions: [{ from: 'a', event: 'go', to: 'b' }] })
    await tx.traces.record(THOUGHT, { id: 't', tags: ['a'] })
  })
}

function printed(what: unknown): string {
  return typeof what === 'bigint'
    ? `${what}n`
    : (JSON.stringify(what, (_, v) => (typeof v === 'function' ? 'function' : v)) ?? 'undefined')
}
