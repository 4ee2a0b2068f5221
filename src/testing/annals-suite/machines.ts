import { expect } from 'vitest'
import type { Annals, Guard, MachineDefinition } from '../../index.ts'
import { bad, expectFrozen, outcomes, RUN, refused, type Suite, times } from './suite.ts'

const ORDER: MachineDefinition = {
  initial: 'open',
  terminal: ['shipped', 'cancelled'],
  transitions: [
    { from: 'open', event: 'pay', to: 'paid' },
    { from: 'open', event: 'cancel', to: 'cancelled' },
    { from: 'paid', event: 'ship', to: 'shipped' },
  ],
}

/** P18: state machines, their versioned definitions and their guards. */
export function testMachines(suite: Suite): void {
  suite.holds('P18: every call on an unknown machine is MACHINE_NOT_FOUND', async db => {
    const attempts = [
      db.machines.send(RUN, 'm', 'pay'),
      db.machines.current(RUN, 'm'),
      db.machines.isTerminal(RUN, 'm'),
      db.machines.can(RUN, 'm', 'pay'),
      db.machines.definition(RUN, 'm'),
      db.machines.toMermaid(RUN, 'm'),
    ]
    await Promise.all(attempts.map(attempt => refused(attempt, 'MACHINE_NOT_FOUND')))
  })

  suite.holds('P18: a machine begins in its initial state and moves as its definition allows', async db => {
    const made = await db.machines.define(RUN, 'm', ORDER)
    expect(made).toEqual({ state: 'open', version: 1, updatedAt: expect.any(Number) })
    expect(await db.machines.current(RUN, 'm')).toEqual(made)
    expect(await db.machines.can(RUN, 'm', 'pay')).toBe(true)
    expect(await db.machines.can(RUN, 'm', 'ship')).toBe(false)
    expect(await db.machines.isTerminal(RUN, 'm')).toBe(false)
    const step = await db.machines.send(RUN, 'm', 'pay')
    expect(step).toEqual({ from: 'open', state: 'paid', version: 2, updatedAt: expect.any(Number) })
    expect(await db.machines.send(RUN, 'm', 'ship')).toMatchObject({
      from: 'paid',
      state: 'shipped',
      version: 3,
    })
    expect(await db.machines.isTerminal(RUN, 'm')).toBe(true)
    expect(await db.machines.current(RUN, 'm')).toMatchObject({ state: 'shipped', version: 3 })
  })

  suite.holds(
    'P18: an event without a transition is INVALID_TRANSITION with the allowed events, and changes nothing',
    async db => {
      await db.machines.define(RUN, 'm', ORDER)
      const before = await db.machines.current(RUN, 'm')
      const { details } = await refused(db.machines.send(RUN, 'm', 'ship'), 'INVALID_TRANSITION')
      expect(details).toMatchObject({ state: 'open', event: 'ship', allowed: ['pay', 'cancel'] })
      expect(await db.machines.current(RUN, 'm')).toEqual(before)
      await db.machines.send(RUN, 'm', 'cancel')
      const terminal = await refused(db.machines.send(RUN, 'm', 'pay'), 'INVALID_TRANSITION')
      expect(terminal.details['allowed']).toEqual([])
    },
  )

  suite.holds('P18: a changed definition gets a new version, and an unchanged one does not', async db => {
    await db.machines.define(RUN, 'm', ORDER)
    await db.machines.define(RUN, 'm', ORDER)
    expect(await db.machines.definition(RUN, 'm')).toEqual({ ...ORDER, version: 1 })
    const wider = {
      ...ORDER,
      transitions: [...ORDER.transitions, { from: 'paid', event: 'refund', to: 'cancelled' }],
    }
    await db.machines.send(RUN, 'm', 'pay')
    expect(await db.machines.define(RUN, 'm', wider)).toMatchObject({ state: 'paid', version: 2 })
    expect(await db.machines.definition(RUN, 'm')).toEqual({ ...wider, version: 2 })
    expect(await db.machines.definition(RUN, 'm', 1)).toEqual({ ...ORDER, version: 1 })
    await refused(db.machines.definition(RUN, 'm', 3), 'MACHINE_NOT_FOUND')
    expect(await db.machines.send(RUN, 'm', 'refund')).toMatchObject({ state: 'cancelled', version: 3 })
  })

  suite.holds(
    'P18: a definition without the current state is INVALID_OPERATION, and changes nothing',
    async db => {
      await db.machines.define(RUN, 'm', ORDER)
      await db.machines.send(RUN, 'm', 'pay')
      const without = { initial: 'open', transitions: [{ from: 'open', event: 'cancel', to: 'cancelled' }] }
      await refused(db.machines.define(RUN, 'm', without), 'INVALID_OPERATION')
      expect(await db.machines.definition(RUN, 'm')).toEqual({ ...ORDER, version: 1 })
      expect(await db.machines.current(RUN, 'm')).toMatchObject({ state: 'paid', version: 2 })
    },
  )

  suite.holds('P18: a state that no transition leaves is terminal by default', async db => {
    const transitions = [{ from: 'off', event: 'flip', to: 'on' }]
    await db.machines.define(RUN, 'm', { initial: 'off', transitions })
    expect((await db.machines.definition(RUN, 'm')).terminal).toEqual(['on'])
    await db.machines.send(RUN, 'm', 'flip')
    expect(await db.machines.isTerminal(RUN, 'm')).toBe(true)
  })

  testGuards(suite)

  suite.holds('an invalid definition is refused, and creates no machine', async db => {
    for (const definition of [
      undefined,
      null,
      {},
      { initial: 'a' },
      { initial: '', transitions: [] },
      { initial: 7, transitions: [] },
      { initial: 'a', transitions: 'none' },
      { initial: 'a', transitions: [null] },
      { initial: 'a', transitions: new Array(1) },
      { initial: 'a', transitions: [], terminal: null },
      { initial: 'a', transitions: [{ from: 'a', event: 'e' }] },
      { initial: 'a', transitions: [{ from: 'a', event: 'e', to: 'b', when: 'x' }] },
      { initial: 'a', transitions: [], terminal: 'a' },
      { initial: 'a', transitions: [{ from: 'a', event: 'e', to: 'b' }], terminal: ['a'] },
      { initial: 'a', transitions: [], states: ['a'] },
      {
        initial: 'a',
        transitions: [
          { from: 'a', event: 'e', to: 'b' },
          { from: 'a', event: 'e', to: 'c' },
        ],
      },
    ]) {
      const what = JSON.stringify(definition) ?? 'undefined'
      await refused(
        db.machines.define(RUN, 'm', bad<MachineDefinition>(definition)),
        'INVALID_ARGUMENT',
        what,
      )
    }
    await refused(db.machines.current(RUN, 'm'), 'MACHINE_NOT_FOUND')
  })

  suite.holds(
    'P18: exactly one of 64 concurrent sends of an event that is possible once succeeds',
    async db => {
      await db.machines.define(RUN, 'm', ORDER)
      const { won, codes } = await outcomes(times(64, () => db.machines.send(RUN, 'm', 'pay')))
      expect(won).toHaveLength(1)
      expect(codes).toEqual(times(63, () => 'INVALID_TRANSITION'))
      expect(await db.machines.current(RUN, 'm')).toMatchObject({ state: 'paid', version: 2 })
    },
  )

  suite.holds(
    'P4: in a transaction, machines and other primitives change together or not at all',
    async db => {
      await db.machines.define(RUN, 'm', ORDER)
      const mine = new Error('mine')
      const attempt = db.transaction(RUN, async tx => {
        expect(await tx.machines.send('m', 'pay')).toMatchObject({ state: 'paid' })
        expect(await tx.machines.current('m')).toMatchObject({ state: 'paid', version: 2 })
        await tx.events.append('paid', null)
        throw mine
      })
      await expect(attempt).rejects.toBe(mine)
      expect(await db.machines.current(RUN, 'm')).toMatchObject({ state: 'open', version: 1 })
      expect(await db.events.length(RUN)).toBe(0)
    },
  )

  suite.holds(
    'P18: terminal states are those the definition names, or else those that no transition leaves',
    async db => {
      const transitions = [
        { from: 'a', event: 'stop', to: 'stopped' },
        { from: 'a', event: 'stick', to: 'stuck' },
      ]
      const cases: readonly [terminal: readonly string[] | undefined, stopped: boolean, stuck: boolean][] = [
        [undefined, true, true],
        [['stopped'], true, false],
        [[], false, false],
      ]
      for (const [i, [terminal, stopped, stuck]] of cases.entries()) {
        for (const [event, isTerminal] of [['stop', stopped] as const, ['stick', stuck] as const]) {
          const name = `${event}-${i}`
          const named = terminal === undefined ? {} : { terminal }
          await db.machines.define(RUN, name, { initial: 'a', transitions, ...named })
          expect(await db.machines.isTerminal(RUN, name), name).toBe(false)
          await db.machines.send(RUN, name, event)
          expect(await db.machines.isTerminal(RUN, name), name).toBe(isTerminal)
        }
      }
    },
  )

  suite.holds('toMermaid draws every state and transition', async db => {
    await db.machines.define(RUN, 'm', ORDER)
    expect(lineByLine(await db.machines.toMermaid(RUN, 'm'))).toEqual([
      'stateDiagram-v2',
      'state "open" as s0',
      'state "paid" as s1',
      'state "cancelled" as s2',
      'state "shipped" as s3',
      '[*] --> s0',
      's0 --> s1: pay',
      's0 --> s2: cancel',
      's1 --> s3: ship',
      's3 --> [*]',
      's2 --> [*]',
    ])
  })

  suite.holds('toMermaid keeps all states apart, and escapes their names', async db => {
    const states = ['s1', 'a b', 's0', 'state', 'note', 'default', 'class', 'scale', 'end', 'direction TB']
    states.push(
      'Direction  LR',
      '[[fork]]',
      '"',
      '#',
      ';',
      ':',
      '%%',
      '-->',
      '\n',
      '<b>',
      '[*]',
      'é',
      '💡',
      'a_b-c.d',
    )
    const transitions = states.map((from, i) => ({ from, event: from, to: states[(i + 1) % states.length] }))
    await db.machines.define(RUN, 'm', { initial: states[0], transitions })
    const lines = lineByLine(await db.machines.toMermaid(RUN, 'm'))
    const drawn = lines.slice(1, states.length + 1).map(line => /^state "([^"]*)" as (s\d+)$/.exec(line)!)
    expect(drawn.map(([, , alias]) => alias)).toEqual(states.map((_, i) => `s${i}`))
    const unescaped = (text: string): string =>
      text.replace(/#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
    expect(drawn.map(([, label]) => unescaped(label))).toEqual(states)
    const arrows = lines.slice(states.length + 2)
    expect(arrows.map(unescaped)).toEqual(
      states.map((state, i) => unescaped(`s${i} --> s${(i + 1) % states.length}: ${state}`)),
    )
    for (const line of lines) {
      // The characters that are not escaped have no meaning in Mermaid.
      const label = /^(?:state "(.*)" as s\d+|s\d+ --> s\d+: (.*))$/.exec(line)?.slice(1).join('') ?? ''
      expect(label.replace(/#\d+;/g, ''), line).not.toMatch(/[":;#%<>[\]{}]|direction\s/i)
    }
  })

  suite.holds('returned values are frozen', async db => {
    expectFrozen(await db.machines.define(RUN, 'm', ORDER))
    expectFrozen(await db.machines.send(RUN, 'm', 'pay'))
    expectFrozen(await db.machines.current(RUN, 'm'))
    expectFrozen(await db.machines.definition(RUN, 'm'))
  })
}

function lineByLine(text: string): string[] {
  return text
    .trimEnd()
    .split('\n')
    .map(line => line.trim())
}

function testGuards(suite: Suite): void {
  const seen: unknown[] = []
  const isPaid: Guard = input => {
    seen.push(input)
    const { payload } = input
    return typeof payload === 'object' && payload !== null && 'paid' in payload && payload['paid'] === true
  }
  const define = (db: Annals): Promise<unknown> =>
    db.machines.define(RUN, 'm', {
      initial: 'open',
      transitions: [
        { from: 'open', event: 'ship', to: 'shipped', guard: 'isPaid' },
        { from: 'open', event: 'ship', to: 'refused' },
        { from: 'open', event: 'rush', to: 'shipped', guard: 'isPaid' },
        { from: 'open', event: 'maybe', to: 'shipped', guard: 'later' },
      ],
    })
  const later = (() => Promise.resolve(true)) as unknown as Guard

  suite.holdsWithGuards(
    'P18: a guard gets state, event and payload, and its result decides',
    { isPaid, later },
    async db => {
      await define(db)
      expect(await db.machines.can(RUN, 'm', 'rush', { paid: true })).toBe(true)
      expect(await db.machines.can(RUN, 'm', 'rush')).toBe(false)
      const { details } = await refused(db.machines.send(RUN, 'm', 'rush', { paid: 1 }), 'INVALID_TRANSITION')
      expect(seen).toContainEqual({ state: 'open', event: 'rush', payload: { paid: 1 } })
      expect(details['allowed']).toEqual(['ship'])
      expect(await db.machines.send(RUN, 'm', 'rush', { paid: true })).toMatchObject({ state: 'shipped' })
    },
  )

  suite.holdsWithGuards(
    'P18: the first transition whose guard returns true is taken',
    { isPaid, later },
    async db => {
      await define(db)
      expect(await db.machines.send(RUN, 'm', 'ship', { paid: false })).toMatchObject({ state: 'refused' })
    },
  )

  const isLarge: Guard = ({ payload }) => Number((payload as { amount: number }).amount) > 5
  suite.holdsWithGuards(
    'P18: an error thrown by a guard reaches its caller unchanged, and affects no other event',
    { isLarge },
    async db => {
      const transitions = [
        { from: 'a', event: 'pay', to: 'b', guard: 'isLarge' },
        { from: 'a', event: 'stop', to: 'c' },
      ]
      await db.machines.define(RUN, 'm', { initial: 'a', transitions })
      const { details } = await refused(db.machines.send(RUN, 'm', 'unknown'), 'INVALID_TRANSITION')
      expect(details['allowed']).toEqual(['stop'])
      await expect(db.machines.send(RUN, 'm', 'pay')).rejects.toThrow(TypeError)
      expect(await db.machines.current(RUN, 'm')).toMatchObject({ state: 'a', version: 1 })
    },
  )

  suite.holdsWithGuards('P18: a guard that returns a promise is refused', { isPaid, later }, async db => {
    await define(db)
    await refused(db.machines.send(RUN, 'm', 'maybe'), 'INVALID_OPERATION')
    expect(await db.machines.current(RUN, 'm')).toMatchObject({ state: 'open', version: 1 })
  })

  suite.holdsWithGuards('P18: a definition that names an unknown guard is refused', { isPaid }, async db => {
    await refused(define(db), 'INVALID_ARGUMENT')
    for (const guard of ['toString', '__proto__', 'constructor']) {
      const transitions = [{ from: 'a', event: 'e', to: 'b', guard }]
      await refused(db.machines.define(RUN, 'm', { initial: 'a', transitions }), 'INVALID_ARGUMENT')
    }
  })
}
